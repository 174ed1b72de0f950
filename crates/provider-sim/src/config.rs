//! What can be set, on the command line and through `/_sim/model`.
//!
//! Promise: [`Settings`] is the document as written; [`Settings::validate`] turns it, once, into
//! a [`Behaviour`] that cannot be wrong. Every refusal names the field, its value and what is
//! allowed, because the reader is someone whose test just failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::losses::LossSpec;
use crate::model::{ModelSpec, PaceSpec};
use crate::reply::Refusal;

mod check;
mod force;
mod merge;
mod plan;
mod presets;
mod validate;
mod windows;

pub use force::{Force, ForceChange, Forced, ForcedReply, OneOrMany, take_force};
pub use merge::{Document, lay, parse_document};
pub use plan::Plan;
pub use presets::{CUSTOM, MODELS, Preset, REPLIES};
pub use windows::{JumpSettings, WindowSettings};

pub const MAX_LIMIT: u32 = 1_000_000;
pub const MAX_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    Json(String),
    #[error("{field}: unknown field; {allowed} are allowed")]
    Unknown { field: String, allowed: String },
    #[error("{field}: {value} is not allowed; {allowed}")]
    Value { field: String, value: String, allowed: String },
}

/// The provider as described: also the JSON of `/_sim/model`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The preset named last, or `custom`.
    pub model: String,
    /// With `window` and `phase`: the quota of the models `rolling` and `fixed`.
    pub limit: u32,
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// Since the start or the last reset.
    #[serde(with = "humantime_serde")]
    pub phase: Duration,
    /// All of them must admit a call; null is the one quota of `rolling` or `fixed`.
    pub windows: Option<Vec<WindowSettings>>,
    pub counted: CountedSettings,
    pub count_refused: bool,
    /// Where a call says how many units it costs; null is one each.
    pub cost: Option<Cost>,
    /// The reply preset named last.
    pub reply: String,
    /// Status of a refusal.
    pub status: u16,
    /// A refusal's Retry-After: a form by name, or text sent as it is; null sends none.
    pub retry_after: Option<OneOrMany>,
    /// What a refusal says to wait; null says what the model would admit.
    #[serde(with = "humantime_serde")]
    pub retry_after_in: Option<Duration>,
    pub refusal_headers: BTreeMap<String, OneOrMany>,
    /// Null is a short JSON document.
    pub refusal_body: Option<String>,
    pub suspended_status: u16,
    pub suspended_retry_after: Option<OneOrMany>,
    pub suspended_body: Option<String>,
    /// The provider's clock minus ours, as its dates show it.
    pub clock_offset_s: i64,
    /// From the last byte of the request to the reply.
    #[serde(with = "humantime_serde")]
    pub latency: Duration,
    /// Added to the latency, evenly spread from nothing to this.
    #[serde(with = "humantime_serde")]
    pub jitter: Duration,
    pub stall: Option<StallSettings>,
    /// Of accepted calls each so-many-th gets no reply: the connection is closed instead.
    pub lose_every: Option<u32>,
    /// The same by chance, from 0 to 1.
    pub lose_probability: f64,
    /// Of the random numbers for jitter and losses.
    pub seed: u64,
    /// Null never suspends.
    pub suspend_after: Option<u32>,
    #[serde(with = "humantime_serde")]
    pub suspend_within: Duration,
    #[serde(with = "humantime_serde")]
    pub suspend_for: Duration,
    /// Changes to come.
    pub schedule: Vec<Step>,
}

/// See [`Counted`](crate::model::Counted).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountedSettings {
    Arrival,
    Body,
    Completion,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// A number in this request header.
    Header(String),
    /// A number, or the length of a list, in this field of the JSON body.
    Json(String),
}

/// See [`Stall`](crate::model::Stall).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallSettings {
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    #[serde(with = "humantime_serde", rename = "for")]
    pub length: Duration,
}

/// At `at` since the start, the last reset or the setting of the schedule, `set` is laid over
/// the settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    #[serde(with = "humantime_serde")]
    pub at: Duration,
    pub set: Map<String, Value>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: "rolling".to_owned(),
            limit: 100,
            window: Duration::from_secs(1),
            phase: Duration::ZERO,
            windows: None,
            counted: CountedSettings::Arrival,
            count_refused: false,
            cost: None,
            reply: "429".to_owned(),
            status: 429,
            retry_after: Some(OneOrMany::One("1".to_owned())),
            retry_after_in: Some(Duration::from_secs(1)),
            refusal_headers: BTreeMap::new(),
            refusal_body: None,
            suspended_status: 429,
            suspended_retry_after: Some(OneOrMany::One("seconds".to_owned())),
            suspended_body: None,
            clock_offset_s: 0,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            stall: None,
            lose_every: None,
            lose_probability: 0.0,
            seed: 1,
            suspend_after: Some(300),
            suspend_within: Duration::from_secs(600),
            suspend_for: Duration::from_secs(3600),
            schedule: Vec::new(),
        }
    }
}

impl ConfigError {
    /// The same about a document that lies at `at` in another.
    fn within(self, at: &str) -> Self {
        match self {
            Self::Json(text) => Self::Json(format!("{at}{text}")),
            Self::Unknown { field, allowed } => {
                Self::Unknown { field: format!("{at}{field}"), allowed }
            }
            Self::Value { field, value, allowed } => {
                Self::Value { field: format!("{at}{field}"), value, allowed }
            }
        }
    }
}

/// Validated [`Settings`], without the schedule.
#[derive(Debug, Clone)]
pub struct Behaviour {
    pub model: ModelSpec,
    pub pace: PaceSpec,
    pub losses: LossSpec,
    pub seed: u64,
    pub cost: UnitCost,
    pub refusal: Arc<Refusal>,
    pub suspended: Arc<Refusal>,
    pub clock_offset_s: i64,
}

/// Validated [`Cost`].
#[derive(Debug, Clone)]
pub enum UnitCost {
    One,
    Header(HeaderName),
    Json(Arc<str>),
}

#[cfg(test)]
mod tests;
