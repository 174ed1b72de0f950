//! Replies that the caller of `/_sim/model` dictates, whatever the model says.
//!
//! Promise: what is written is sent as written: no field is added to a forced reply but those
//! HTTP cannot do without.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ConfigError;
use super::check::{header_name, header_text, status, wrong};
use super::merge::{Document, parse};

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

#[derive(Debug)]
pub enum ForceChange {
    Keep,
    Clear,
    Set(Box<Forced>),
}

/// Takes `force` out of a document of changes.
pub fn take_force(given: &mut Document) -> Result<ForceChange, ConfigError> {
    match given.remove("force") {
        None => Ok(ForceChange::Keep),
        Some(Value::Null) => Ok(ForceChange::Clear),
        Some(force) => {
            let force: Force = parse(force)
                .map_err(|error: ConfigError| ConfigError::Json(format!("force.{error}")))?;
            Ok(ForceChange::Set(Box::new(force.validate()?)))
        }
    }
}

impl OneOrMany {
    pub fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

impl Force {
    fn validate(self) -> Result<Forced, ConfigError> {
        if self.times == 0 || self.times > MAX_FORCED {
            let allowed = format!("1 to {MAX_FORCED} are (null instead of force ends it)");
            return Err(wrong("force.times", self.times, allowed));
        }
        let mut headers = HeaderMap::new();
        for (name, values) in &self.headers {
            let at = format!("force.headers.{name}");
            let field = header_name(&at, name)?;
            for value in values.values() {
                headers.append(field.clone(), header_text(&at, value)?);
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
