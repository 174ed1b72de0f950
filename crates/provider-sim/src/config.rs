//! What can be set, on the command line and through `/_sim/model`.
//!
//! Promise: [`Settings`] is the document as written; [`Settings::validate`] turns it, once, into
//! a [`Behaviour`] that cannot be wrong. Every refusal names the field, its value and what is
//! allowed, because the reader is someone whose test just failed.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{ModelSpec, SuspensionSpec, WindowSpec};

/// A rolling log keeps one instant per place: this bounds it to 16 MB.
pub const MAX_LIMIT: u32 = 1_000_000;
pub const MAX_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);
pub const MAX_FORCED: u32 = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    Json(String),
    #[error("{field}: {value} is not allowed; {allowed}")]
    Value {
        field: &'static str,
        value: String,
        allowed: String,
    },
    #[error("force.headers.{name}: {value:?} is not a header; {allowed}")]
    Header {
        name: String,
        value: String,
        allowed: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// At most LIMIT in any WINDOW, wherever it is laid.
    Rolling,
    /// A counter that starts again at PHASE and every WINDOW after it.
    Fixed,
}

/// The provider as described: also the JSON of `/_sim/model`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub model: Kind,
    pub limit: u32,
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// Since the start or the last reset.
    #[serde(with = "humantime_serde")]
    pub phase: Duration,
    pub count_refused: bool,
    /// Status of a refusal.
    pub status: u16,
    /// Text of a refusal's Retry-After, sent as it is; null sends none.
    pub retry_after: Option<String>,
    /// From the last byte of the request to the reply.
    #[serde(with = "humantime_serde")]
    pub latency: Duration,
    /// Null never suspends.
    pub suspend_after: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub suspend_within: Duration,
    #[serde(with = "humantime_serde")]
    pub suspend_for: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: Kind::Rolling,
            limit: 100,
            window: Duration::from_secs(1),
            phase: Duration::ZERO,
            count_refused: false,
            status: 429,
            retry_after: Some("1".to_owned()),
            latency: Duration::ZERO,
            suspend_after: Some(300),
            suspend_within: Duration::from_secs(600),
            suspend_for: Duration::from_secs(3600),
        }
    }
}

/// Validated [`Settings`].
#[derive(Debug, Clone)]
pub struct Behaviour {
    pub model: ModelSpec,
    pub refusal: Refusal,
    pub latency: Duration,
}

#[derive(Debug, Clone)]
pub struct Refusal {
    pub status: StatusCode,
    pub retry_after: Option<HeaderValue>,
}

impl Settings {
    pub fn validate(&self) -> Result<Behaviour, ConfigError> {
        let limit = at_most("limit", self.limit, MAX_LIMIT)?;
        let window = positive("window", self.window)?;
        let window = match self.model {
            Kind::Rolling => WindowSpec::Rolling { limit, window },
            Kind::Fixed if self.phase < window => WindowSpec::Fixed {
                limit,
                window,
                phase: self.phase,
            },
            Kind::Fixed => return Err(self.phase_beyond_window()),
        };
        let suspension = match self.suspend_after {
            None => None,
            Some(after) => Some(SuspensionSpec {
                after: at_most("suspend_after", after, MAX_LIMIT)?,
                within: positive("suspend_within", self.suspend_within)?,
                length: positive("suspend_for", self.suspend_for)?,
            }),
        };
        Ok(Behaviour {
            model: ModelSpec {
                windows: vec![window],
                count_refused: self.count_refused,
                suspension,
            },
            refusal: Refusal {
                status: status("status", self.status)?,
                retry_after: self.retry_after.as_deref().map(retry_after).transpose()?,
            },
            latency: bounded("latency", self.latency)?,
        })
    }

    fn phase_beyond_window(&self) -> ConfigError {
        ConfigError::Value {
            field: "phase",
            value: humantime::format_duration(self.phase).to_string(),
            allowed: format!(
                "it must be less than the window, {}",
                humantime::format_duration(self.window)
            ),
        }
    }
}

/// What `POST /_sim/model` asks for, on top of what is set.
#[derive(Debug)]
pub struct Change {
    pub settings: Settings,
    pub behaviour: Behaviour,
    pub force: ForceChange,
}

#[derive(Debug)]
pub enum ForceChange {
    Keep,
    Clear,
    Set(Box<Forced>),
}

/// Lays the given fields over `settings`; fields that are not given stay.
pub fn merge(settings: &Settings, body: &[u8]) -> Result<Change, ConfigError> {
    let mut given: Map<String, Value> = parse(&mut serde_json::Deserializer::from_slice(body))?;
    let force = match given.remove("force") {
        None => ForceChange::Keep,
        Some(Value::Null) => ForceChange::Clear,
        Some(force) => ForceChange::Set(Box::new(
            parse::<_, Force>(force)
                .map_err(|error| ConfigError::Json(format!("force.{error}")))?
                .validate()?,
        )),
    };
    let mut document = match serde_json::to_value(settings) {
        Ok(Value::Object(document)) => document,
        other => return Err(ConfigError::Json(format!("settings as JSON: {other:?}"))),
    };
    document.extend(given);
    let settings: Settings = parse(Value::Object(document))?;
    let behaviour = settings.validate()?;
    Ok(Change {
        settings,
        behaviour,
        force,
    })
}

fn parse<'de, D, T>(input: D) -> Result<T, ConfigError>
where
    D: serde::Deserializer<'de>,
    D::Error: std::fmt::Display,
    T: Deserialize<'de>,
{
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        // A document that is no object, and an unknown field, have no path worth naming.
        let text = match path.as_str() {
            "." | "?" => error.inner().to_string(),
            _ => format!("{path}: {}", error.inner()),
        };
        ConfigError::Json(text)
    })
}

/// The next `times` replies, whatever the model says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Force {
    #[serde(default = "once")]
    pub times: u32,
    pub status: u16,
    #[serde(default)]
    pub headers: BTreeMap<String, OneOrMany>,
    #[serde(default)]
    pub body: String,
}

fn once() -> u32 {
    1
}

/// A list sends the field once per value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// A validated [`Force`], counting down.
#[derive(Debug, Clone)]
pub struct Forced {
    pub written: Force,
    pub reply: ForcedReply,
}

#[derive(Debug, Clone)]
pub struct ForcedReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Force {
    fn validate(self) -> Result<Forced, ConfigError> {
        if self.times == 0 || self.times > MAX_FORCED {
            return Err(ConfigError::Value {
                field: "force.times",
                value: self.times.to_string(),
                allowed: format!("1 to {MAX_FORCED} are (null instead of force ends it)"),
            });
        }
        let mut headers = HeaderMap::new();
        for (name, values) in &self.headers {
            let field = HeaderName::try_from(name).map_err(|_| ConfigError::Header {
                name: name.clone(),
                value: name.clone(),
                allowed: "a field name is letters, digits and hyphens",
            })?;
            let values = match values {
                OneOrMany::One(value) => std::slice::from_ref(value),
                OneOrMany::Many(values) => values,
            };
            for value in values {
                let text =
                    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| ConfigError::Header {
                        name: name.clone(),
                        value: value.clone(),
                        allowed: "a value is one line without control characters",
                    })?;
                headers.append(field.clone(), text);
            }
        }
        Ok(Forced {
            reply: ForcedReply {
                status: status("force.status", self.status)?,
                headers,
                body: Bytes::from(self.body.clone()),
            },
            written: self,
        })
    }
}

fn at_most(field: &'static str, value: u32, max: u32) -> Result<usize, ConfigError> {
    if value <= max {
        return Ok(value as usize);
    }
    Err(ConfigError::Value {
        field,
        value: value.to_string(),
        allowed: format!("0 to {max} are"),
    })
}

fn positive(field: &'static str, value: Duration) -> Result<Duration, ConfigError> {
    if value.is_zero() {
        return Err(ConfigError::Value {
            field,
            value: "0s".to_owned(),
            allowed: "it must be longer than nothing, such as 1s".to_owned(),
        });
    }
    bounded(field, value)
}

fn bounded(field: &'static str, value: Duration) -> Result<Duration, ConfigError> {
    if value <= MAX_DURATION {
        return Ok(value);
    }
    Err(ConfigError::Value {
        field,
        value: humantime::format_duration(value).to_string(),
        allowed: format!("at most {}", humantime::format_duration(MAX_DURATION)),
    })
}

/// Not 1xx: that would be no reply. Beyond 599 there is no meaning.
fn status(field: &'static str, value: u16) -> Result<StatusCode, ConfigError> {
    let allowed = || ConfigError::Value {
        field,
        value: value.to_string(),
        allowed: "200 to 599 are".to_owned(),
    };
    match StatusCode::from_u16(value) {
        Ok(status) if (200..=599).contains(&value) => Ok(status),
        _ => Err(allowed()),
    }
}

fn retry_after(text: &str) -> Result<HeaderValue, ConfigError> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| ConfigError::Value {
        field: "retry_after",
        value: format!("{text:?}"),
        allowed: "a value is one line without control characters".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(body: &str, message: &str) {
        match merge(&Settings::default(), body.as_bytes()) {
            Ok(_) => panic!("{body} was accepted"),
            Err(error) => assert!(
                error.to_string().contains(message),
                "{body}: got {error:?}, wanted {message:?}"
            ),
        }
    }

    #[test]
    fn given_fields_replace_and_the_rest_stays() -> Result<(), ConfigError> {
        let change = merge(
            &Settings::default(),
            br#"{"model":"fixed","phase":"370ms","retry_after":null,"suspend_after":null}"#,
        )?;
        let expected = Settings {
            model: Kind::Fixed,
            phase: Duration::from_millis(370),
            retry_after: None,
            suspend_after: None,
            ..Settings::default()
        };
        assert_eq!(change.settings, expected);
        assert!(matches!(change.force, ForceChange::Keep));
        Ok(())
    }

    #[test]
    fn force_is_read_with_repeated_headers() -> Result<(), ConfigError> {
        let change = merge(
            &Settings::default(),
            br#"{"force":{"times":2,"status":503,"headers":{"retry-after":["1","2"],"date":"x"}}}"#,
        )?;
        let ForceChange::Set(forced) = change.force else {
            panic!("no force in {change:?}");
        };
        assert_eq!(forced.written.times, 2);
        assert_eq!(
            forced.reply.headers.get_all("retry-after").iter().count(),
            2
        );
        Ok(())
    }

    #[test]
    fn every_refusal_names_the_field() {
        check_refused(
            r#"{"limits":5}"#,
            "unknown field `limits`, expected one of `model`",
        );
        check_refused(r#"{"limit":"5"}"#, "limit: invalid type: string");
        check_refused(
            r#"{"limit":1000001}"#,
            "limit: 1000001 is not allowed; 0 to 1000000",
        );
        check_refused(r#"{"limit":null}"#, "limit: invalid type: null");
        check_refused(r#"{"window":"0s"}"#, "window: 0s");
        check_refused(
            r#"{"window":"8days"}"#,
            "window: 8days is not allowed; at most 7days",
        );
        check_refused(r#"{"window":"soon"}"#, "window: ");
        check_refused(r#"{"model":"leaky"}"#, "model: unknown variant `leaky`");
        check_refused(
            r#"{"model":"fixed","phase":"1s"}"#,
            "phase: 1s is not allowed",
        );
        check_refused(
            r#"{"status":100}"#,
            "status: 100 is not allowed; 200 to 599",
        );
        check_refused(r#"{"retry_after":"1\n2"}"#, "retry_after: \"1\\n2\"");
        check_refused(r#"{"suspend_for":"0s"}"#, "suspend_for: 0s");
        check_refused("[]", "invalid type: sequence");
        check_refused("{", "EOF");
    }

    #[test]
    fn every_refused_force_names_the_field() {
        check_refused(r#"{"force":{"times":1}}"#, "missing field `status`");
        check_refused(
            r#"{"force":{"status":"429"}}"#,
            "force.status: invalid type",
        );
        check_refused(r#"{"force":{"status":429,"times":0}}"#, "force.times: 0");
        check_refused(r#"{"force":{"status":600}}"#, "force.status: 600");
        check_refused(
            r#"{"force":{"status":429,"reason":"x"}}"#,
            "unknown field `reason`",
        );
        let header = r#"{"force":{"status":429,"headers":{"retry-after":1}}}"#;
        check_refused(
            header,
            "force.headers.retry-after: a text or a list of texts",
        );
        let name = r#"{"force":{"status":429,"headers":{"a b":"1"}}}"#;
        check_refused(name, "force.headers.a b:");
    }
}
