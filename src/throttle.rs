//! A provider's refusal, read.
//!
//! Promise: what the provider asks for is never taken as shorter than it is; a time that cannot be
//! read is the policy's default.

use limits::{
    Micros,
    policy::Throttle,
    retry_after::{self, Said},
};

use crate::pairs::Pairs;

/// The pause a throttled reply asks for, from its header fields in any order.
pub fn pause(headers: &Pairs, wall_now: Micros, throttle: &Throttle) -> (Micros, Said) {
    let named = |wanted: &'static str| {
        let fields = headers.iter().filter(move |(name, _)| *name == wanted.as_bytes());
        fields.map(|(_, value)| value)
    };
    retry_after::pause(named("retry-after"), named("date").next(), wall_now, throttle)
}
