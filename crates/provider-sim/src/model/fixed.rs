//! A counter that starts again at fixed instants, which may jump.

use std::time::Duration;

/// At `every`, `2 every`, ... the provider's counters restart and the phase moves on by `by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    pub every: Duration,
    pub by: Duration,
}

#[derive(Debug)]
pub struct FixedWindow {
    limit: u64,
    window: Duration,
    /// As configured; less than `window`.
    phase: Duration,
    jump: Option<Jump>,
    /// Added to `phase` by restarts; less than `window`.
    shift: Duration,
    /// Jumps so far, and the number of the window since then.
    turn: (u128, u128),
    used: u64,
}

impl FixedWindow {
    pub fn new(limit: u64, window: Duration, phase: Duration, jump: Option<Jump>) -> Self {
        let shift = Duration::ZERO;
        Self { limit, window, phase, jump, shift, turn: (0, 0), used: 0 }
    }

    /// The counter stays only while the windows lie where they lay.
    pub fn adopt(&mut self, limit: u64, window: Duration, phase: Duration, jump: Option<Jump>) {
        if (window, phase, jump) == (self.window, self.phase, self.jump) {
            self.limit = limit;
        } else {
            *self = Self::new(limit, window, phase, jump);
        }
    }

    pub fn refuses(&mut self, now: Duration, units: u32) -> Option<Duration> {
        self.turn_to(now);
        if self.used + u64::from(units) <= self.limit {
            return None;
        }
        let left = self.window - remainder(self.since_boundary(now), self.window);
        Some(match self.jump {
            None => left,
            Some(jump) => left.min(jump.every - remainder(now, jump.every)),
        })
    }

    pub fn count(&mut self, now: Duration, units: u32) {
        self.turn_to(now);
        self.used = self.used.saturating_add(u64::from(units));
    }

    /// Windows begin at `phase` from now on, the present one with nothing used.
    pub fn restart(&mut self, now: Duration, phase: Duration) {
        self.shift = Duration::ZERO;
        let ahead = remainder(phase, self.window) + self.window;
        self.shift = remainder(ahead - self.phase_at(now), self.window);
        self.turn_to(now);
        self.used = 0;
    }

    fn turn_to(&mut self, now: Duration) {
        let index = self.since_boundary(now).as_nanos() / self.window.as_nanos();
        let turn = (self.jumps(now), index);
        if turn != self.turn {
            self.turn = turn;
            self.used = 0;
        }
    }

    /// Since some boundary that is not after `now`: one window is added so that the time before
    /// the first boundary has one too.
    fn since_boundary(&self, now: Duration) -> Duration {
        now + self.window - self.phase_at(now)
    }

    fn phase_at(&self, now: Duration) -> Duration {
        let moved = match self.jump {
            None => Duration::ZERO,
            Some(jump) => {
                let by = jump.by.as_nanos() * self.jumps(now);
                nanos(by % self.window.as_nanos())
            }
        };
        remainder(self.phase + self.shift + moved, self.window)
    }

    fn jumps(&self, now: Duration) -> u128 {
        self.jump.map_or(0, |jump| now.as_nanos() / jump.every.as_nanos())
    }
}

fn remainder(of: Duration, by: Duration) -> Duration {
    nanos(of.as_nanos() % by.as_nanos())
}

/// `n` is less than a window, and a window is at most seven days.
fn nanos(n: u128) -> Duration {
    Duration::from_nanos(u64::try_from(n).unwrap_or(u64::MAX))
}
