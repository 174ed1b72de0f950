//! What a gateway and a decider say to each other: JSON over HTTP.
//!
//! Promise: unknown fields are refused on the way in, names carry their unit, and every reply of a
//! decider carries [`MARKER`]; a reply without it came from something else and is not believed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{decision::Reason, members::Standing};

pub const DECIDE_PATH: &str = "/v1/decide";
pub const THROTTLED_PATH: &str = "/v1/throttled";
/// Present on every reply of a decider.
pub const MARKER: &str = "x-weir-decider";
/// Classes in one request, and requests of one class in it: bounds, not expectations.
pub const WANTS_MAX: usize = 64;
pub const N_MAX: u64 = 100_000;

/// "May these requests go?" An empty `wants` asks only whether the decider and its store work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideRequest {
    pub limit: String,
    /// Hash of the policy the gateway runs, [`crate::policy::Policy::hash`].
    pub policy: String,
    /// Names the gateway's process: for people, and the holder of its lease.
    pub gateway: String,
    /// The ask counts for nothing after this instant on the deciding clock, µs since the epoch.
    /// With it the ask renews the gateway's lease ([`crate::members`]); without it, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    /// Gives the lease back instead; needs a deadline.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaves: bool,
    pub wants: Vec<Count>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// So many requests of a class: 0 to [`N_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    pub class: String,
    pub n: u64,
}

/// The waits cover every class of the limit, asked for or not: they are true until someone else is
/// granted, and then they only get longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecideReply {
    /// The deciding clock, µs since the epoch.
    pub now_us: u64,
    pub granted: Vec<Count>,
    /// From `now_us` until one more of the class could go; a class that could go now is left out.
    pub wait_us: BTreeMap<String, u64>,
    pub reason: BTreeMap<String, Reason>,
    /// What is left of the provider's stop.
    pub penalty_us: u64,
    /// When the deciding memory began, on its clock: another value says that it was lost, and with
    /// it the stops it knew. 0, and a guest, are what a decider without them means.
    #[serde(default)]
    pub born_us: u64,
    #[serde(default)]
    pub standing: Standing,
}

/// "The provider throttled us." Sent again until answered; `id` makes that harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrottledRequest {
    pub limit: String,
    /// How long the provider asks everyone to stop, from now.
    pub pause_us: u64,
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottledReply {
    /// What is left of the stop; longer than `pause_us` when a longer one stands.
    pub penalty_us: u64,
}

/// Body of every 4xx and 5xx of the decider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: String,
}

impl Reason {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::ClassRate => "class_rate",
            Self::Penalty => "penalty",
        }
    }
}

impl Standing {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Guest => "guest",
            Self::Member => "member",
        }
    }
}

/// Written and read by its name, and nothing else.
macro_rules! by_name {
    ($type:ident: $($variant:ident),+) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                const NAMES: &[&str] = &[$($type::$variant.name()),+];
                let text = String::deserialize(from)?;
                [$($type::$variant),+]
                    .into_iter()
                    .find(|known| known.name() == text)
                    .ok_or_else(|| serde::de::Error::unknown_variant(&text, NAMES))
            }
        }
    };
}

by_name!(Reason: Rate, ClassRate, Penalty);
by_name!(Standing: Late, Guest, Member);
