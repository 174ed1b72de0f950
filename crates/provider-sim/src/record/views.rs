//! The record as JSON shows it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Outcome;

#[derive(Debug, Serialize)]
pub struct Counts {
    pub arrivals: u64,
    pub accepted: u64,
    pub refused: u64,
    /// Forced replies that are neither, and calls whose sender went away before a verdict.
    pub failed: u64,
    /// No verdict yet: a provider may count a call only when it is worked off.
    pub pending: u64,
    pub max_in_any_1s: u64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub total: Counts,
    pub body_bytes: u64,
    pub by_class: BTreeMap<String, Counts>,
    pub first_at_s: Option<f64>,
    pub last_at_s: Option<f64>,
    /// The log of arrivals is full; the counters are not affected.
    pub arrivals_truncated: bool,
}

#[derive(Debug, Serialize)]
pub struct ArrivalView {
    pub at_us: u64,
    pub class: String,
    /// 0: pending.
    pub status: u16,
    pub outcome: Outcome,
    pub path: String,
    pub method: String,
}

#[derive(Debug, Serialize)]
pub struct RequestView {
    pub id: u64,
    pub at_us: u64,
    pub method: String,
    pub path: String,
    pub class: String,
    pub status: u16,
    pub body_bytes: u64,
    /// Whether the body has been read to its end.
    pub complete: bool,
    pub headers: Vec<(String, String)>,
}
