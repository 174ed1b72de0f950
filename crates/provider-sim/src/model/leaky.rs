//! A bucket that drains steadily; what does not fit is refused.
//!
//! Exact: the level is kept in units times the nanoseconds of the window, so that draining
//! needs no division and rounds nothing.

use std::time::Duration;

#[derive(Debug)]
pub struct LeakyBucket {
    limit: u64,
    window: Duration,
    capacity: u64,
    /// One unit is `window` in nanoseconds.
    level: u128,
    at: Duration,
}

impl LeakyBucket {
    pub fn new(limit: u64, window: Duration, capacity: u64) -> Self {
        Self { limit, window, capacity, level: 0, at: Duration::ZERO }
    }

    /// The units in the bucket stay, those that no longer fit run over.
    pub fn adopt(&mut self, limit: u64, window: Duration, capacity: u64) {
        let (old, new) = (self.window.as_nanos(), window.as_nanos());
        // In two steps: level times window could exceed 128 bits.
        self.level = self.level / old * new + self.level % old * new / old;
        self.level = self.level.min(u128::from(capacity) * new);
        (self.limit, self.window, self.capacity) = (limit, window, capacity);
    }

    pub fn refuses(&mut self, now: Duration, units: u32) -> Option<Duration> {
        self.drain(now);
        let excess = (self.level + self.scaled(units.into())).checked_sub(self.full() + 1)? + 1;
        let drained = excess.div_ceil(u128::from(self.limit.max(1)));
        Some(Duration::from_nanos(u64::try_from(drained).unwrap_or(u64::MAX)))
    }

    pub fn count(&mut self, now: Duration, units: u32) {
        self.drain(now);
        self.level = (self.level + self.scaled(units.into())).min(self.full());
    }

    fn drain(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_nanos();
        self.level = self.level.saturating_sub(passed * u128::from(self.limit));
        self.at = now;
    }

    fn full(&self) -> u128 {
        self.scaled(self.capacity)
    }

    fn scaled(&self, units: u64) -> u128 {
        u128::from(units) * self.window.as_nanos()
    }
}
