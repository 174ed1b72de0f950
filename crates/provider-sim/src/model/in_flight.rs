//! Calls between their headers and the end of the work on them.
//!
//! Promise: a call ends at the instant that was fixed when its body had come, whether or not
//! anybody is there to take the reply: a sender that gives up early frees nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Verdict;

/// A call whose end is known. Ordered by it, then by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub until: Duration,
    pub id: u64,
    /// Units to be judged at the end.
    pub undecided: Option<u32>,
}

/// A call that has been worked off.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    pub id: u64,
    pub at: Duration,
    /// With the units, for a call that is judged at its end.
    pub verdict: Option<(Verdict, u32)>,
}

#[derive(Debug, Default)]
pub struct InFlight {
    /// Calls whose body has not come yet.
    open: usize,
    held: BinaryHeap<Reverse<Held>>,
    max: usize,
}

impl InFlight {
    pub fn open(&mut self) {
        self.open += 1;
        self.max = self.max.max(self.len());
    }

    pub fn release(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    pub fn hold(&mut self, held: Held) {
        self.release();
        self.held.push(Reverse(held));
    }

    pub fn next_end(&self) -> Option<Duration> {
        self.held.peek().map(|Reverse(held)| held.until)
    }

    pub fn end_next(&mut self) -> Option<Held> {
        self.held.pop().map(|Reverse(held)| held)
    }

    /// One more call than `limit` has to wait for the next end; unknown ends count as near.
    pub fn refuses(&self, now: Duration, limit: usize) -> Option<Duration> {
        let full = self.len() >= limit;
        full.then(|| self.next_end().map_or(Duration::ZERO, |end| end.saturating_sub(now)))
    }

    pub fn len(&self) -> usize {
        self.open + self.held.len()
    }

    pub fn max(&self) -> usize {
        self.max
    }
}
