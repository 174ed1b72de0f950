//! What the provider allows, decided from arrival instants alone.
//!
//! Promise: the same arrivals give the same verdicts, whoever asks and however late. No clock,
//! no I/O and no HTTP in here: `now` is the time since the measurement began, and must not step
//! back. This is the judge's own arithmetic; it shares nothing with what it judges.
//!
//! A new kind of quota is one more `Window` variant with the two questions `admits` and
//! `count`. They are apart so that windows compose: all must admit before any of them counts.

use std::collections::VecDeque;
use std::time::Duration;

/// What the provider answers to one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    /// Over the quota.
    Refuse,
    /// The account is stopped for `remaining` more.
    Suspended {
        remaining: Duration,
    },
}

/// One quota. A window of zero length is refused by the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowSpec {
    /// At most `limit` in every half-open interval of length `window`.
    Rolling { limit: usize, window: Duration },
    /// A counter that starts again at `phase`, `phase + window`, `phase + 2 window`, ...
    Fixed { limit: usize, window: Duration, phase: Duration },
}

/// More than `after` refusals less than `within` apart stop the account for `length`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspensionSpec {
    pub after: usize,
    pub within: Duration,
    pub length: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpec {
    /// All of them must admit a call.
    pub windows: Vec<WindowSpec>,
    /// Whether a refused call uses up quota too, as some providers have it.
    pub count_refused: bool,
    pub suspension: Option<SuspensionSpec>,
}

/// A [`ModelSpec`] at work.
#[derive(Debug)]
pub struct Model {
    spec: ModelSpec,
    windows: Vec<Window>,
    suspension: Option<Suspension>,
    first_suspended_at: Option<Duration>,
}

impl Model {
    pub fn new(spec: ModelSpec) -> Self {
        Self {
            windows: spec.windows.iter().map(Window::new).collect(),
            suspension: spec.suspension.clone().map(Suspension::new),
            first_suspended_at: None,
            spec,
        }
    }

    /// Judges a call that arrives at `now`.
    pub fn arrive(&mut self, now: Duration) -> Verdict {
        if let Some(remaining) = self.suspended_for(now) {
            return Verdict::Suspended { remaining };
        }
        let admitted = self.windows.iter_mut().all(|window| window.admits(now));
        if admitted || self.spec.count_refused {
            self.count(now);
        }
        if admitted {
            return Verdict::Accept;
        }
        self.record_refusal(now);
        Verdict::Refuse
    }

    /// A call that was accepted without asking (a forced reply): it uses quota all the same.
    pub fn record_acceptance(&mut self, now: Duration) {
        self.count(now);
    }

    /// A call that was refused, here or by a forced reply: it is one step towards suspension.
    pub fn record_refusal(&mut self, now: Duration) {
        if self.suspended_for(now).is_some() {
            return;
        }
        let Some(suspension) = &mut self.suspension else {
            return;
        };
        if suspension.refused(now) {
            self.first_suspended_at.get_or_insert(now);
        }
    }

    /// Time left until the account works again; nothing when it works.
    pub fn suspended_for(&self, now: Duration) -> Option<Duration> {
        let until = self.suspension.as_ref()?.until?;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    pub fn first_suspended_at(&self) -> Option<Duration> {
        self.first_suspended_at
    }

    /// Adopts `spec`. What stays as it was keeps its history: a provider that lengthens a
    /// suspension does not forget the calls of the last second.
    pub fn reconfigure(&mut self, spec: ModelSpec) {
        if spec.windows != self.spec.windows {
            self.windows = spec.windows.iter().map(Window::new).collect();
        }
        if spec.suspension != self.spec.suspension {
            self.suspension = spec.suspension.clone().map(Suspension::new);
        }
        self.spec = spec;
    }

    fn count(&mut self, now: Duration) {
        for window in &mut self.windows {
            window.count(now);
        }
    }
}

#[derive(Debug)]
enum Window {
    Rolling(RollingLog),
    Fixed(FixedWindow),
}

impl Window {
    fn new(spec: &WindowSpec) -> Self {
        match *spec {
            WindowSpec::Rolling { limit, window } => {
                Self::Rolling(RollingLog { limit, window, counted: VecDeque::new() })
            }
            WindowSpec::Fixed { limit, window, phase } => {
                Self::Fixed(FixedWindow { limit, window, phase, index: 0, used: 0 })
            }
        }
    }

    fn admits(&mut self, now: Duration) -> bool {
        match self {
            Self::Rolling(log) => log.admits(now),
            Self::Fixed(fixed) => fixed.admits(now),
        }
    }

    fn count(&mut self, now: Duration) {
        match self {
            Self::Rolling(log) => log.count(now),
            Self::Fixed(fixed) => fixed.count(now),
        }
    }
}

/// Exact: only the last `limit` counted instants can matter, so only those are kept.
#[derive(Debug)]
struct RollingLog {
    limit: usize,
    window: Duration,
    counted: VecDeque<Duration>,
}

impl RollingLog {
    fn admits(&self, now: Duration) -> bool {
        if self.counted.len() < self.limit {
            return true;
        }
        match self.counted.front() {
            // Half-open: a call exactly one window later is in the next window.
            Some(&oldest) => now.saturating_sub(oldest) >= self.window,
            None => false,
        }
    }

    fn count(&mut self, now: Duration) {
        if self.limit == 0 {
            return;
        }
        if self.counted.len() == self.limit {
            self.counted.pop_front();
        }
        self.counted.push_back(now);
    }
}

#[derive(Debug)]
struct FixedWindow {
    limit: usize,
    window: Duration,
    /// Less than `window`.
    phase: Duration,
    index: u128,
    used: usize,
}

impl FixedWindow {
    fn admits(&mut self, now: Duration) -> bool {
        self.turn_to(now);
        self.used < self.limit
    }

    fn count(&mut self, now: Duration) {
        self.turn_to(now);
        self.used = self.used.saturating_add(1);
    }

    fn turn_to(&mut self, now: Duration) {
        // One window is added so that the time before `phase` has an index too.
        let shifted = now + self.window - self.phase;
        let index = shifted.as_nanos() / self.window.as_nanos();
        if index != self.index {
            self.index = index;
            self.used = 0;
        }
    }
}

#[derive(Debug)]
struct Suspension {
    spec: SuspensionSpec,
    /// The last `after + 1` refusals: as many as it takes.
    refusals: VecDeque<Duration>,
    until: Option<Duration>,
}

impl Suspension {
    fn new(spec: SuspensionSpec) -> Self {
        Self { spec, refusals: VecDeque::new(), until: None }
    }

    /// Notes a refusal; true when it was the one too many.
    fn refused(&mut self, now: Duration) -> bool {
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
}

#[cfg(test)]
mod tests;
