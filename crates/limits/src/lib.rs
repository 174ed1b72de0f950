//! The arithmetic and the types that the filter and the decider share.
//!
//! Promise: pure. Nothing here does I/O, reads a clock, draws a random number or logs; `now` is
//! always an argument, so every rule can be replayed. It builds for the gateway (wasm32) and
//! natively.
//!
//! Reading order: `units`, `gcra` (one rate), `decision` (a whole limit: all rates, all classes,
//! the penalty), `members` and `lease` (who may send when the decider cannot answer: the store's side
//! and the gateway's), `policy` (the one document), `worst` (what a provider can see at most, and what is
//! left for gateways that are cut off), `wire` (what gateway and decider say to each other),
//! `retry_after` (what a provider says when it refuses).
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod decision;
pub mod gcra;
pub mod lease;
pub mod members;
pub mod policy;
pub mod retry_after;
pub mod units;
pub mod wire;
pub mod worst;

pub use units::Micros;
