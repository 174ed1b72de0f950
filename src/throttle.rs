//! A provider's refusal, read.
//!
//! Promise: what the provider asks for is never taken as shorter than it is; a time that cannot be
//! read is the policy's default.

use limits::{
    Micros,
    policy::Throttle,
    retry_after::{self, Said},
};

/// The pause a throttled reply asks for, from its header fields in any order.
pub fn pause(
    headers: &[(String, Vec<u8>)],
    wall_now: Micros,
    throttle: &Throttle,
) -> (Micros, Said) {
    let named = |wanted: &'static str| {
        let fields = headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        fields.map(|(_, value)| value.as_slice())
    };
    retry_after::pause(named("retry-after"), named("date").next(), wall_now, throttle)
}
