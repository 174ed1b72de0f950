//! A log of what was counted in the last window: exact wherever the window is laid.

use std::collections::VecDeque;
use std::time::Duration;

/// Instants kept. Without refused calls a log never holds more than `limit`, which is less;
/// with them, the oldest are dropped while those that stay are more than any limit.
const MAX_ENTRIES: usize = 1_000_000;

#[derive(Debug)]
pub struct RollingLog {
    limit: u64,
    window: Duration,
    counted: VecDeque<(Duration, u32)>,
    /// Units in `counted`.
    used: u64,
}

impl RollingLog {
    pub fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window, counted: VecDeque::new(), used: 0 }
    }

    /// What a shorter window has let go does not come back when it is lengthened.
    pub fn adopt(&mut self, limit: u64, window: Duration) {
        self.limit = limit;
        self.window = window;
    }

    pub fn refuses(&mut self, now: Duration, units: u32) -> Option<Duration> {
        self.expire(now);
        let mut excess = (self.used + u64::from(units)).checked_sub(self.limit + 1)? + 1;
        for &(at, units) in &self.counted {
            excess = excess.saturating_sub(u64::from(units));
            if excess == 0 {
                return Some((at + self.window).saturating_sub(now));
            }
        }
        // More than the whole limit: no time is long enough.
        Some(self.window)
    }

    pub fn count(&mut self, now: Duration, units: u32) {
        self.expire(now);
        if self.counted.len() == MAX_ENTRIES {
            self.drop_oldest();
        }
        self.counted.push_back((now, units));
        self.used += u64::from(units);
    }

    fn expire(&mut self, now: Duration) {
        // Half-open: a call exactly one window later is in the next window.
        while self
            .counted
            .front()
            .is_some_and(|&(oldest, _)| now.saturating_sub(oldest) >= self.window)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, units)) = self.counted.pop_front() {
            self.used -= u64::from(units);
        }
    }
}
