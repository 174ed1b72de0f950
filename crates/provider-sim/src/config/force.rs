//! Replies that the caller of `/_sim/model` dictates, whatever the model says.
//!
//! Promise: what is written is sent as written: no field is added to a forced reply but those
//! HTTP cannot do without.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::{ConfigError, status};

pub const MAX_FORCED: u32 = 1_000_000;

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
    pub(super) fn validate(self) -> Result<Forced, ConfigError> {
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
