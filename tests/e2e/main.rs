//! Weir as it is deployed: the real Envoy with the filter, the real decider, the real Redis, and a
//! provider that judges.
//!
//! Promise: what is asserted here was seen from outside, by the provider's report, a caller's
//! answer, or a counter that an operator would look at. Programs are started, never linked, so a
//! mistake cannot excuse itself by sharing a constant with its test. Each test has a stack of its own
//! on free ports, and they take turns, for they measure time.
//!
//! Needs built programs and fetched tools: `cargo xtask test` does all of it.

mod harness;

mod bad_policies;
mod bodies;
mod burst;
mod contract;
mod decider_away;
mod flood;
mod hostile;
mod identity;
mod incidents;
mod load;
mod network;
mod otp_first;
mod partition;
mod penalty;
mod refusal;
mod retries;
mod store_crash;
mod visible;
mod vm_failure;
