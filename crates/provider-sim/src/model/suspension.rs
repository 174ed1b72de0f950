//! The budget of refusals, and the stop when it is spent.

use std::collections::VecDeque;
use std::time::Duration;

/// More than `after` refusals less than `within` apart stop the account for `length`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspensionSpec {
    pub after: usize,
    pub within: Duration,
    pub length: Duration,
}

#[derive(Debug)]
pub struct Suspension {
    spec: SuspensionSpec,
    /// The last `after + 1` refusals: as many as it takes.
    refusals: VecDeque<Duration>,
    until: Option<Duration>,
}

impl Suspension {
    pub fn new(spec: SuspensionSpec) -> Self {
        Self { spec, refusals: VecDeque::new(), until: None }
    }

    /// Notes a refusal; true when it was the one too many.
    pub fn refused(&mut self, now: Duration) -> bool {
        self.refusals.push_back(now);
        if self.refusals.len() <= self.spec.after {
            return false;
        }
        let oldest = self.refusals.pop_front().unwrap_or(now);
        if now.saturating_sub(oldest) >= self.spec.within {
            return false;
        }
        self.until = Some(now + self.spec.length);
        self.refusals.clear();
        true
    }

    pub fn left(&self, now: Duration) -> Option<Duration> {
        self.until?.checked_sub(now).filter(|left| !left.is_zero())
    }
}
