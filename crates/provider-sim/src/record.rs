//! What arrived: counters, the log of arrivals, the last requests in full.
//!
//! Promise: an arrival is in the report from the moment its headers were read, and the report's
//! sums agree at every moment. A class is known only once the body is, and bodies end in any
//! order; so arrivals wait in line for their class, and each class's counters are fed in the
//! order of arrival. Until then they are reported as `unknown`. The same holds for an outcome
//! that comes later: until then it is `pending`.
//!
//! Everything kept is bounded by the constants below; what is cut off is said.

use std::collections::VecDeque;

use axum::http::{Method, StatusCode};
use serde::Serialize;

use crate::header_bytes::HeaderBytes;
use crate::rolling_max::RollingMax;
use crate::texts::{TextId, Texts};

pub mod messages;
pub mod peaks;
pub mod timeline;
mod views;

use timeline::{Timeline, TimelineView};
pub use views::{ArrivalView, Counts, Report, RequestView};

pub const MAX_LOG: usize = 1_000_000;
pub const MAX_RECENT: usize = 1_000;
/// Header bytes kept for the recent requests.
pub const MAX_RECENT_BYTES: usize = 64 * 1024 * 1024;
/// Classes beyond these are counted together, as `other`.
pub const MAX_CLASSES: usize = 64;
/// Arrivals that may wait for their class; beyond, the oldest stays `unknown`.
pub const MAX_UNSETTLED: usize = 1_000_000;

const UNKNOWN: u16 = 0;
const OTHER: u16 = 1;

/// How an arrival counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Accepted,
    /// Throttled.
    Refused,
    /// A forced reply that says neither, or no verdict because the sender went away.
    Failed,
    /// No verdict yet.
    Pending,
}

/// An arrival as its headers show it.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Never before the previous arrival.
    pub at_ns: u64,
    pub outcome: Outcome,
    /// None as long as the outcome is pending.
    pub status: Option<StatusCode>,
    pub method: &'a Method,
    /// With the query.
    pub path: &'a str,
    pub headers: HeaderBytes,
}

#[derive(Debug)]
pub struct Record {
    total: Tally,
    body_bytes: u64,
    first_at_ns: Option<u64>,
    last_at_ns: u64,
    /// Index: class. `unknown` and `other` are always there.
    classes: Vec<(String, Tally)>,
    unsettled: VecDeque<Unsettled>,
    /// Arrivals `1..=settled` have their class for good.
    settled: u64,
    log: Vec<LogEntry>,
    texts: Texts,
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    timeline: Timeline,
}

#[derive(Debug, Clone, Default)]
struct Tally {
    arrivals: u64,
    accepted: u64,
    refused: u64,
    failed: u64,
    pending: u64,
    rolling: RollingMax,
}

#[derive(Debug, Clone, Copy)]
struct Unsettled {
    at_ns: u64,
    outcome: Outcome,
    class: Option<u16>,
}

#[derive(Debug, Clone, Copy)]
struct LogEntry {
    at_us: u64,
    method: TextId,
    path: TextId,
    class: u16,
    status: u16,
    outcome: Outcome,
}

#[derive(Debug)]
struct Recent {
    id: u64,
    at_us: u64,
    method: Method,
    path: String,
    class: u16,
    status: u16,
    body_bytes: u64,
    complete: bool,
    headers: HeaderBytes,
}

impl Recent {
    fn bytes(&self) -> usize {
        self.path.len() + self.headers.bytes()
    }
}

impl Default for Record {
    fn default() -> Self {
        let class = |name: &str| (name.to_owned(), Tally::default());
        Self {
            total: Tally::default(),
            body_bytes: 0,
            first_at_ns: None,
            last_at_ns: 0,
            classes: vec![class("unknown"), class("other")],
            unsettled: VecDeque::new(),
            settled: 0,
            log: Vec::new(),
            texts: Texts::default(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            timeline: Timeline::default(),
        }
    }
}

impl Record {
    /// Notes an arrival and numbers it, from 1.
    pub fn arrive(&mut self, arrival: Arrival<'_>) -> u64 {
        self.total.add(arrival.at_ns, arrival.outcome);
        let id = self.total.arrivals;
        self.first_at_ns.get_or_insert(arrival.at_ns);
        self.last_at_ns = arrival.at_ns;
        if self.unsettled.len() == MAX_UNSETTLED {
            self.settle_oldest();
        }
        self.timeline.add(arrival.at_ns, UNKNOWN, arrival.outcome);
        self.unsettled.push_back(Unsettled {
            at_ns: arrival.at_ns,
            outcome: arrival.outcome,
            class: None,
        });
        if self.log.len() < MAX_LOG {
            self.log.push(LogEntry {
                at_us: arrival.at_ns / 1_000,
                method: self.texts.intern(arrival.method.as_str()),
                path: self.texts.intern(arrival.path),
                class: UNKNOWN,
                status: code(arrival.status),
                outcome: arrival.outcome,
            });
        }
        self.keep_recent(id, arrival);
        id
    }

    pub fn body(&mut self, id: u64, bytes: u64) {
        self.body_bytes += bytes;
        if let Some(recent) = self.recent_mut(id) {
            recent.body_bytes += bytes;
        }
    }

    /// The body has ended, or never will: `class` is final. `complete` tells which.
    pub fn settle(&mut self, id: u64, class: Option<&str>, complete: bool) {
        let class = class.map_or(UNKNOWN, |name| self.class_id(name));
        if let Some(entry) = index(id, 1).and_then(|at| self.log.get_mut(at)) {
            entry.class = class;
        }
        if let Some(recent) = self.recent_mut(id) {
            recent.class = class;
            recent.complete = complete;
        }
        if let Some(waiting) = self.waiting_mut(id) {
            waiting.class = Some(class);
            let Unsettled { at_ns, outcome, .. } = *waiting;
            if class != UNKNOWN {
                self.timeline.take_back(at_ns, UNKNOWN, outcome);
                self.timeline.add(at_ns, class, outcome);
            }
        }
        self.settle_ready();
    }

    /// The verdict on an arrival that was pending.
    pub fn decide(&mut self, id: u64, outcome: Outcome, status: StatusCode) {
        if let Some(entry) = index(id, 1).and_then(|at| self.log.get_mut(at)) {
            entry.status = status.as_u16();
            entry.outcome = outcome;
        }
        if let Some(recent) = self.recent_mut(id) {
            recent.status = status.as_u16();
        }
        if let Some(waiting) = self.waiting_mut(id) {
            let before = std::mem::replace(&mut waiting.outcome, outcome);
            let (at_ns, class) = (waiting.at_ns, waiting.class.unwrap_or(UNKNOWN));
            *self.total.count(before) -= 1;
            *self.total.count(outcome) += 1;
            self.timeline.take_back(at_ns, class, before);
            self.timeline.add(at_ns, class, outcome);
        }
        self.settle_ready();
    }

    pub fn report(&self) -> Report {
        let mut classes = self.classes.clone();
        for waiting in &self.unsettled {
            let class = waiting.class.unwrap_or(UNKNOWN);
            classes[usize::from(class)].1.add(waiting.at_ns, waiting.outcome);
        }
        let seen = classes.into_iter().filter(|(_, tally)| tally.arrivals > 0);
        Report {
            total: self.total.counts(),
            body_bytes: self.body_bytes,
            by_class: seen.map(|(name, tally)| (name, tally.counts())).collect(),
            first_at_s: self.first_at_ns.map(seconds),
            last_at_s: self.first_at_ns.map(|_| seconds(self.last_at_ns)),
            arrivals_truncated: self.log_truncated(),
        }
    }

    /// Up to `max` arrivals, the first of them number `from + 1`.
    pub fn arrivals(&self, from: usize, max: usize) -> Vec<ArrivalView> {
        let entries = self.log.iter().skip(from).take(max);
        let view = |entry: &LogEntry| ArrivalView {
            at_us: entry.at_us,
            class: self.classes[usize::from(entry.class)].0.clone(),
            status: entry.status,
            outcome: entry.outcome,
            path: self.texts.get(entry.path).to_owned(),
            method: self.texts.get(entry.method).to_owned(),
        };
        entries.map(view).collect()
    }

    pub fn log_truncated(&self) -> bool {
        self.total.arrivals > self.log.len() as u64
    }

    /// The last `last` requests, oldest first.
    pub fn requests(&self, last: usize) -> Vec<RequestView> {
        let view = |recent: &Recent| RequestView {
            id: recent.id,
            at_us: recent.at_us,
            method: recent.method.to_string(),
            path: recent.path.clone(),
            class: self.classes[usize::from(recent.class)].0.clone(),
            status: recent.status,
            body_bytes: recent.body_bytes,
            complete: recent.complete,
            headers: recent.headers.pairs(),
        };
        let skip = self.recent.len().saturating_sub(last);
        self.recent.iter().skip(skip).map(view).collect()
    }

    pub fn timeline(&self) -> TimelineView {
        self.timeline.view(self.classes.iter().map(|(name, _)| name.as_str()))
    }

    /// Arrivals in line for their class or outcome.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.unsettled.len()
    }

    fn settle_ready(&mut self) {
        let ready =
            |oldest: &Unsettled| oldest.class.is_some() && oldest.outcome != Outcome::Pending;
        while self.unsettled.front().is_some_and(ready) {
            self.settle_oldest();
        }
    }

    fn waiting_mut(&mut self, id: u64) -> Option<&mut Unsettled> {
        self.unsettled.get_mut(index(id, self.settled + 1)?)
    }

    fn settle_oldest(&mut self) {
        if let Some(oldest) = self.unsettled.pop_front() {
            self.settled += 1;
            let class = oldest.class.unwrap_or(UNKNOWN);
            self.classes[usize::from(class)].1.add(oldest.at_ns, oldest.outcome);
        }
    }

    fn class_id(&mut self, name: &str) -> u16 {
        let known = self.classes.iter().position(|(known, _)| known == name);
        let at = match known {
            Some(at) => at,
            None if self.classes.len() == MAX_CLASSES => return OTHER,
            None => {
                self.classes.push((name.to_owned(), Tally::default()));
                self.classes.len() - 1
            }
        };
        u16::try_from(at).unwrap_or(OTHER)
    }

    fn keep_recent(&mut self, id: u64, arrival: Arrival<'_>) {
        let recent = Recent {
            id,
            at_us: arrival.at_ns / 1_000,
            method: arrival.method.clone(),
            path: arrival.path.to_owned(),
            class: UNKNOWN,
            status: code(arrival.status),
            body_bytes: 0,
            complete: false,
            headers: arrival.headers,
        };
        self.recent_bytes += recent.bytes();
        self.recent.push_back(recent);
        while self.recent.len() > MAX_RECENT || self.recent_bytes > MAX_RECENT_BYTES {
            let Some(oldest) = self.recent.pop_front() else {
                break;
            };
            self.recent_bytes -= oldest.bytes();
        }
    }

    fn recent_mut(&mut self, id: u64) -> Option<&mut Recent> {
        let first = self.recent.front()?.id;
        self.recent.get_mut(index(id, first)?)
    }
}

impl Tally {
    fn add(&mut self, at_ns: u64, outcome: Outcome) {
        self.arrivals += 1;
        *self.count(outcome) += 1;
        self.rolling.add(at_ns, 1);
    }

    fn count(&mut self, outcome: Outcome) -> &mut u64 {
        match outcome {
            Outcome::Accepted => &mut self.accepted,
            Outcome::Refused => &mut self.refused,
            Outcome::Failed => &mut self.failed,
            Outcome::Pending => &mut self.pending,
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            arrivals: self.arrivals,
            accepted: self.accepted,
            refused: self.refused,
            failed: self.failed,
            pending: self.pending,
            max_in_any_1s: self.rolling.max(),
        }
    }
}

/// 0 where there is no status yet.
fn code(status: Option<StatusCode>) -> u16 {
    status.map_or(0, |status| status.as_u16())
}

/// Place of `id` in a list whose first element is number `first`.
fn index(id: u64, first: u64) -> Option<usize> {
    usize::try_from(id.checked_sub(first)?).ok()
}

pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
