//! Quotas as they are written in JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::{at_most, less, positive, wrong};
use super::{ConfigError, MAX_LIMIT};
use crate::model::{Jump, WindowSpec};

pub const MAX_WINDOWS: usize = 16;

/// One of `windows`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum WindowSettings {
    /// At most `limit` units in any `window`, wherever it is laid.
    Rolling {
        limit: u32,
        #[serde(with = "humantime_serde")]
        window: Duration,
    },
    /// A counter that starts again at `phase` and every `window` after it.
    Fixed {
        limit: u32,
        #[serde(with = "humantime_serde")]
        window: Duration,
        #[serde(default, with = "humantime_serde")]
        phase: Duration,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        jump: Option<JumpSettings>,
    },
    /// Drains `limit` units per `window`, and holds `capacity`.
    Leaky {
        limit: u32,
        #[serde(with = "humantime_serde")]
        window: Duration,
        capacity: u32,
    },
    /// At most `limit` calls at the same time.
    Concurrency { limit: u32 },
}

/// The counter restarts and the phase moves on by `by`, at `every` and each `every` after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JumpSettings {
    #[serde(with = "humantime_serde")]
    pub every: Duration,
    #[serde(with = "humantime_serde")]
    pub by: Duration,
}

/// `field` is the name of the list.
pub(super) fn validate(
    field: &str,
    windows: &[WindowSettings],
) -> Result<Vec<WindowSpec>, ConfigError> {
    if windows.len() > MAX_WINDOWS {
        let allowed = format!("at most {MAX_WINDOWS} are");
        return Err(wrong(field, format!("a list of {}", windows.len()), allowed));
    }
    let each = windows.iter().enumerate();
    each.map(|(n, window)| window.validate(&format!("{field}[{n}]."))).collect()
}

impl WindowSettings {
    /// `at` stands before the names of fields.
    pub(super) fn validate(&self, at: &str) -> Result<WindowSpec, ConfigError> {
        let name = |field: &str| format!("{at}{field}");
        let units = |field: &str, value| at_most(&name(field), value, MAX_LIMIT).map(u64::from);
        Ok(match *self {
            Self::Rolling { limit, window } => WindowSpec::Rolling {
                limit: units("limit", limit)?,
                window: positive(&name("window"), window)?,
            },
            Self::Fixed { limit, window, phase, jump } => WindowSpec::Fixed {
                limit: units("limit", limit)?,
                window: positive(&name("window"), window)?,
                phase: less(&name("phase"), phase, window, "window")?,
                jump: match jump {
                    None => None,
                    Some(JumpSettings { every, by }) => Some(Jump {
                        every: positive(&name("jump.every"), every)?,
                        by: less(&name("jump.by"), by, window, "window")?,
                    }),
                },
            },
            Self::Leaky { limit, window, capacity } => WindowSpec::Leaky {
                limit: units("limit", limit)?,
                window: positive(&name("window"), window)?,
                capacity: units("capacity", capacity)?,
            },
            Self::Concurrency { limit } => WindowSpec::Concurrency {
                limit: at_most(&name("limit"), limit, MAX_LIMIT)? as usize,
            },
        })
    }

    /// The length in which units are counted, if there is one.
    pub fn length(&self) -> Option<Duration> {
        match *self {
            Self::Rolling { window, .. } | Self::Fixed { window, .. } => Some(window),
            Self::Leaky { .. } | Self::Concurrency { .. } => None,
        }
    }
}
