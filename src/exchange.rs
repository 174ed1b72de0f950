//! One request's life.
//!
//! ```text
//! New ─ find ─► Unmatched                                     never looked at again
//!          └──► Waiting ──► Forwarded ── provider's reply ──► (throttled? pause, report, rewrite)
//!          └──────┴───────► Refused   ── our own reply ─────► left alone
//! ```
//! Promise: a state is left only forward, a paused stream is settled exactly once, and only a reply
//! that really came from the provider to a request that we forwarded can become a pause.

/// Where a request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    New,
    /// The policy does not speak of it.
    Unmatched,
    /// Paused until a decision.
    Waiting,
    /// On its way to the provider.
    Forwarded,
    /// We answered.
    Refused,
}

/// What Envoy calls a response that an upstream host sent (and not a filter, a route or Envoy).
pub const VIA_UPSTREAM: &[u8] = b"via_upstream";

/// Removed from every matched request: what callers use to make Envoy send a request again or
/// elsewhere, and what only we may say. `x-envoy-max-retries: 0` is set in their place.
pub const STRIPPED: [&str; 7] = [
    "x-envoy-retry-on",
    "x-envoy-retry-grpc-on",
    "x-envoy-retriable-status-codes",
    "x-envoy-retriable-header-names",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-alt-stat-name",
];

/// Beginning of the names that are ours alone: a caller's are removed too.
pub const RESERVED: &str = "x-weir-";

pub const MAX_RETRIES: (&str, &str) = ("x-envoy-max-retries", "0");

impl State {
    /// Settles a paused stream: true exactly once.
    pub fn settle(cell: &std::cell::Cell<Self>, to: Self) -> bool {
        let waiting = cell.get() == Self::Waiting;
        if waiting {
            cell.set(to);
        }
        waiting
    }

    /// May a reply be a provider's refusal? `status` and `code_details` are looked up only when what
    /// comes before them says yes: each costs a call into the host.
    pub fn is_throttled(
        self,
        statuses: &[u16],
        status: impl FnOnce() -> Option<u16>,
        code_details: impl FnOnce() -> Option<Vec<u8>>,
    ) -> bool {
        self == Self::Forwarded
            && status().is_some_and(|status| statuses.contains(&status))
            && code_details().is_some_and(|details| details == VIA_UPSTREAM)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn throttled(state: State, status: u16, details: Option<&[u8]>) -> bool {
        state.is_throttled(&[429], || Some(status), || details.map(<[u8]>::to_vec))
    }

    #[test]
    fn only_a_providers_own_429_is_a_throttle() {
        assert!(throttled(State::Forwarded, 429, Some(VIA_UPSTREAM)));
        assert!(!throttled(State::Forwarded, 503, Some(VIA_UPSTREAM)), "another status");
        assert!(!throttled(State::Forwarded, 429, Some(b"local_rate_limited")), "another filter");
        assert!(!throttled(State::Forwarded, 429, None), "a local reply");
        assert!(!throttled(State::Refused, 429, Some(VIA_UPSTREAM)), "our own");
        assert!(!throttled(State::Unmatched, 429, Some(VIA_UPSTREAM)), "not ours to judge");
    }

    #[test]
    fn a_stream_is_settled_once() {
        let cell = Cell::new(State::Waiting);
        assert!(State::settle(&cell, State::Forwarded));
        assert!(!State::settle(&cell, State::Refused));
        assert_eq!(cell.get(), State::Forwarded);
    }
}
