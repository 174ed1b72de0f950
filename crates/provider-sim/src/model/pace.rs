//! How long the provider works on a call.
//!
//! Promise: seeded, so that a run can be repeated: the n-th call takes the same time again.

use std::time::Duration;

/// From `every` after the start on, and again after each `every`, nothing ends for `length`:
/// what would have ended meanwhile ends when the stall does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    pub every: Duration,
    pub length: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceSpec {
    pub latency: Duration,
    /// Up to so much is added, evenly spread.
    pub jitter: Duration,
    pub stall: Option<Stall>,
}

#[derive(Debug)]
pub struct Pace {
    spec: PaceSpec,
    random: fastrand::Rng,
}

impl Pace {
    pub fn new(spec: PaceSpec, seed: u64) -> Self {
        Self { spec, random: fastrand::Rng::with_seed(seed) }
    }

    pub fn reconfigure(&mut self, spec: PaceSpec) {
        self.spec = spec;
    }

    /// When the work on a call ends whose body came at `now`.
    pub fn end_of(&mut self, now: Duration) -> Duration {
        let jitter = u64::try_from(self.spec.jitter.as_nanos()).unwrap_or(u64::MAX - 1);
        let jitter = match jitter {
            0 => 0,
            most => self.random.u64(0..=most),
        };
        let end = now + self.spec.latency + Duration::from_nanos(jitter);
        self.spec.stall.map_or(end, |stall| stall.delay(end))
    }
}

impl Stall {
    fn delay(&self, end: Duration) -> Duration {
        let into = end.as_nanos() % self.every.as_nanos();
        let first = end < self.every;
        match self.length.as_nanos().checked_sub(into) {
            Some(left) if !first => end + Duration::from_nanos(u64::try_from(left).unwrap_or(0)),
            _ => end,
        }
    }
}
