//! Weir's filter: runs inside Envoy, on the egress gateway, as a proxy-wasm module.
//!
//! Promise: every matched request is answered once: forwarded when the decider granted it, refused
//! with an honest time otherwise; when the decider cannot answer, only the share that is safe
//! whatever everybody else does goes out. No panic, no pause without an end.
//!
//! Reading order: `config` (what it is told), `request` (whose request is this), `exchange` (one
//! request's life), `gate` over `record` and `fallback` (what the whole gateway knows, in shared
//! data), `lane` (who waits for the next call), `calls` (what is said to the decider), `refusal` and
//! `throttle` (what callers and providers say), `reports`, `metrics`, `pairs`, `worker` (all of it on one
//! Envoy worker); then `host`, the only module that names the host's interface.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::arithmetic_side_effects
    )
)]

mod calls;
mod config;
mod exchange;
mod fallback;
mod gate;
mod lane;
mod metrics;
mod pairs;
mod record;
mod refusal;
mod reports;
mod request;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod simulation;
mod throttle;
mod worker;

mod host;
