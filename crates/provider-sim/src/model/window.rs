//! One quota of any kind.

use std::time::Duration;

use super::fixed::{FixedWindow, Jump};
use super::in_flight::InFlight;
use super::leaky::LeakyBucket;
use super::rolling::RollingLog;

/// One quota. A window of zero length is refused by the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowSpec {
    /// At most `limit` units in every half-open interval of length `window`.
    Rolling { limit: u64, window: Duration },
    /// A counter that starts again at `phase`, `phase + window`, `phase + 2 window`, ...
    Fixed { limit: u64, window: Duration, phase: Duration, jump: Option<Jump> },
    /// Drains `limit` units per `window`; a call must find room for its units below `capacity`.
    /// A token bucket of that size and rate gives the same verdicts.
    Leaky { limit: u64, window: Duration, capacity: u64 },
    /// At most `limit` calls between their headers and the end of the work on them.
    Concurrency { limit: usize },
}

#[derive(Debug)]
pub struct Window {
    quota: Quota,
    refused: u64,
}

#[derive(Debug)]
enum Quota {
    Rolling(RollingLog),
    Fixed(FixedWindow),
    Leaky(LeakyBucket),
    Concurrency { limit: usize },
}

impl Window {
    pub fn new(spec: &WindowSpec) -> Self {
        let quota = match *spec {
            WindowSpec::Rolling { limit, window } => Quota::Rolling(RollingLog::new(limit, window)),
            WindowSpec::Fixed { limit, window, phase, jump } => {
                Quota::Fixed(FixedWindow::new(limit, window, phase, jump))
            }
            WindowSpec::Leaky { limit, window, capacity } => {
                Quota::Leaky(LeakyBucket::new(limit, window, capacity))
            }
            WindowSpec::Concurrency { limit } => Quota::Concurrency { limit },
        };
        Self { quota, refused: 0 }
    }

    /// `spec` with the counters of the window that was in its place, if it was of its kind.
    pub fn adopt(old: Option<Self>, spec: &WindowSpec) -> Self {
        let Some(mut old) = old else {
            return Self::new(spec);
        };
        match (&mut old.quota, spec) {
            (Quota::Rolling(log), &WindowSpec::Rolling { limit, window }) => {
                log.adopt(limit, window);
            }
            (Quota::Fixed(fixed), &WindowSpec::Fixed { limit, window, phase, jump }) => {
                fixed.adopt(limit, window, phase, jump);
            }
            (Quota::Leaky(bucket), &WindowSpec::Leaky { limit, window, capacity }) => {
                bucket.adopt(limit, window, capacity);
            }
            (Quota::Concurrency { limit }, WindowSpec::Concurrency { limit: new }) => *limit = *new,
            _ => return Self::new(spec),
        }
        old
    }

    pub fn is_concurrency(&self) -> bool {
        matches!(self.quota, Quota::Concurrency { .. })
    }

    /// Nothing when the call is admitted, else the time until it would be.
    pub fn refuses(&mut self, now: Duration, units: u32, calls: &InFlight) -> Option<Duration> {
        let wait = match &mut self.quota {
            Quota::Rolling(log) => log.refuses(now, units),
            Quota::Fixed(fixed) => fixed.refuses(now, units),
            Quota::Leaky(bucket) => bucket.refuses(now, units),
            Quota::Concurrency { limit } => calls.refuses(now, *limit),
        };
        self.refused += u64::from(wait.is_some());
        wait
    }

    pub fn count(&mut self, now: Duration, units: u32) {
        match &mut self.quota {
            Quota::Rolling(log) => log.count(now, units),
            Quota::Fixed(fixed) => fixed.count(now, units),
            Quota::Leaky(bucket) => bucket.count(now, units),
            // The calls in flight are the count.
            Quota::Concurrency { .. } => {}
        }
    }

    pub fn restart(&mut self, now: Duration, phase: Duration) {
        if let Quota::Fixed(fixed) = &mut self.quota {
            fixed.restart(now, phase);
        }
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }
}
