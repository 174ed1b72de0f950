//! The `weir` program: the decider that gateways ask, and the tools for its policy.
//!
//! Promise: `limits` decides, this crate only carries questions to it. Nothing here knows a rate.
//!
//! Reading order: `document` (policy file), `store` (where a limit's state lives), `batch` (asks
//! that wait together are decided together), `metrics`, `http` (the endpoint), `doors` (its
//! connections), `settings` (what `serve` was told), then one file per command: `serve`, `check`,
//! `render`.
#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod document;
pub mod doors;
pub mod http;
pub mod metrics;
pub mod render;
pub mod serve;
pub mod settings;
pub mod sparse;
pub mod store;

#[cfg(test)]
mod fake;
