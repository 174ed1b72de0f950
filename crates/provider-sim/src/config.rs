//! What can be set, on the command line and through `/_sim/model`.
//!
//! Promise: [`Settings`] is the document as written; [`Settings::validate`] turns it, once, into
//! a [`Behaviour`] that cannot be wrong. Every refusal names the field, its value and what is
//! allowed, because the reader is someone whose test just failed.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{ModelSpec, SuspensionSpec, WindowSpec};

mod force;

pub use force::{Force, Forced, ForcedReply, OneOrMany};

/// A rolling log keeps one instant per place: this bounds it to 16 MB.
pub const MAX_LIMIT: u32 = 1_000_000;
pub const MAX_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    Json(String),
    #[error("{field}: unknown field; {allowed} are allowed")]
    Unknown { field: String, allowed: String },
    #[error("{field}: {value} is not allowed; {allowed}")]
    Value { field: &'static str, value: String, allowed: String },
    #[error("force.headers.{name}: {value:?} is not a header; {allowed}")]
    Header { name: String, value: String, allowed: &'static str },
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
            Kind::Fixed if self.phase < window => {
                WindowSpec::Fixed { limit, window, phase: self.phase }
            }
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
    if let Some(field) = given.keys().find(|field| !document.contains_key(*field)) {
        let known: Vec<&str> = document.keys().map(String::as_str).collect();
        return Err(ConfigError::Unknown {
            field: field.clone(),
            allowed: format!("{} and force", known.join(", ")),
        });
    }
    document.extend(given);
    let settings: Settings = parse(Value::Object(document))?;
    let behaviour = settings.validate()?;
    Ok(Change { settings, behaviour, force })
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

fn at_most(field: &'static str, value: u32, max: u32) -> Result<usize, ConfigError> {
    if value <= max {
        return Ok(value as usize);
    }
    Err(ConfigError::Value { field, value: value.to_string(), allowed: format!("0 to {max} are") })
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
mod tests;
