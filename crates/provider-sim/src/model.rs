//! What the provider allows, decided from instants alone.
//!
//! Promise: the same arrivals give the same verdicts, whoever asks and however late. No clock,
//! no I/O and no HTTP in here: `now` is the time since the measurement began, and must not step
//! back. This is the judge's own arithmetic; it shares nothing with what it judges.
//!
//! Windows compose: all that concern a call must admit it before any of them counts it. A new
//! kind of quota is one more [`WindowSpec`] with the questions of `Window`.

use std::time::Duration;

mod fixed;
mod in_flight;
mod leaky;
mod pace;
mod rolling;
mod suspension;
mod window;

pub use fixed::Jump;
pub use in_flight::Finished;
use in_flight::{Held, InFlight};
pub use pace::{Pace, PaceSpec, Stall};
use suspension::Suspension;
pub use suspension::SuspensionSpec;
use window::Window;
pub use window::WindowSpec;

/// What the provider answers to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    /// Over a quota; the same call would be admitted after `wait` if nobody else came.
    Refuse {
        wait: Duration,
    },
    /// The account is stopped for `remaining` more.
    Suspended {
        remaining: Duration,
    },
}

/// The instant by which quotas count a call. Concurrency is counted from the headers on in
/// every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Its headers have been read.
    Arrival,
    /// Its body has been read: what it costs may stand there.
    Body,
    /// It has been worked off, just before the reply.
    Completion,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpec {
    /// All of them must admit a call.
    pub windows: Vec<WindowSpec>,
    pub counted: Counted,
    /// Whether a refused call uses up quota too, as some providers have it.
    pub count_refused: bool,
    pub suspension: Option<SuspensionSpec>,
}

/// A [`ModelSpec`] at work.
///
/// A call that was accepted, or whose verdict is still to come, is in flight until [`release`]
/// or, after [`hold`], until its time has come; who opened it must call one of the two.
///
/// [`release`]: Model::release
/// [`hold`]: Model::hold
#[derive(Debug)]
pub struct Model {
    spec: ModelSpec,
    windows: Vec<Window>,
    in_flight: InFlight,
    suspension: Option<Suspension>,
    first_suspended_at: Option<Duration>,
}

impl Model {
    pub fn new(spec: ModelSpec) -> Self {
        Self {
            windows: spec.windows.iter().map(Window::new).collect(),
            in_flight: InFlight::default(),
            suspension: spec.suspension.clone().map(Suspension::new),
            first_suspended_at: None,
            spec,
        }
    }

    pub fn counted(&self) -> Counted {
        self.spec.counted
    }

    /// The headers of a call have come. No verdict yet: it comes with the body or the end.
    pub fn arrive(&mut self, now: Duration, units: u32) -> Option<Verdict> {
        let at_once = self.spec.counted == Counted::Arrival;
        let verdict = self.judge(now, units, |window| at_once || window.is_concurrency());
        if verdict != Verdict::Accept {
            return Some(verdict);
        }
        self.in_flight.open();
        at_once.then_some(verdict)
    }

    /// Judges a call that is in flight without a verdict.
    pub fn charge(&mut self, now: Duration, units: u32) -> Verdict {
        self.judge(now, units, |window| !window.is_concurrency())
    }

    /// The call is no longer in flight: it was refused, or its sender went away in mid-body.
    pub fn release(&mut self) {
        self.in_flight.release();
    }

    /// Call `id`, in flight, is worked off at `until`. `undecided`: its verdict comes then, for
    /// so many units.
    pub fn hold(&mut self, id: u64, until: Duration, undecided: Option<u32>) {
        self.in_flight.hold(Held { until, id, undecided });
    }

    /// When the next call in flight is worked off.
    pub fn next_end(&self) -> Option<Duration> {
        self.in_flight.next_end()
    }

    /// Ends the call of [`Model::next_end`].
    pub fn end_next(&mut self) -> Option<Finished> {
        let Held { until, id, undecided } = self.in_flight.end_next()?;
        let verdict = undecided.map(|units| (self.charge(until, units), units));
        Some(Finished { id, at: until, verdict })
    }

    /// A call that was accepted without asking (a forced reply): it uses quota all the same.
    pub fn record_acceptance(&mut self, now: Duration, units: u32) {
        self.count(now, units, |_| true);
        self.in_flight.open();
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
        self.suspension.as_ref()?.left(now)
    }

    pub fn first_suspended_at(&self) -> Option<Duration> {
        self.first_suspended_at
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn max_in_flight(&self) -> usize {
        self.in_flight.max()
    }

    /// Refusals by window, in the order of the specification. A call that two windows refuse
    /// counts in both.
    pub fn refused_by(&self) -> Vec<u64> {
        self.windows.iter().map(Window::refused).collect()
    }

    /// The provider's counters have restarted: fixed windows begin at `phase`, or now.
    pub fn restart(&mut self, now: Duration, phase: Option<Duration>) {
        for window in &mut self.windows {
            window.restart(now, phase.unwrap_or(now));
        }
    }

    /// Adopts `spec`. What can keep its history does: a provider that halves the limit does not
    /// forget the calls of the last second.
    pub fn reconfigure(&mut self, spec: ModelSpec) {
        let mut old = std::mem::take(&mut self.windows).into_iter();
        self.windows = spec.windows.iter().map(|spec| Window::adopt(old.next(), spec)).collect();
        if spec.suspension != self.spec.suspension {
            self.suspension = spec.suspension.clone().map(Suspension::new);
        }
        self.spec = spec;
    }

    fn judge(&mut self, now: Duration, units: u32, concerns: impl Fn(&Window) -> bool) -> Verdict {
        if let Some(remaining) = self.suspended_for(now) {
            return Verdict::Suspended { remaining };
        }
        let in_flight = &self.in_flight;
        let concerned = self.windows.iter_mut().filter(|window| concerns(window));
        // Not short-circuited: every window that refuses is to know.
        let wait = concerned.filter_map(|window| window.refuses(now, units, in_flight)).max();
        if wait.is_none() || self.spec.count_refused {
            self.count(now, units, concerns);
        }
        match wait {
            None => Verdict::Accept,
            Some(wait) => {
                self.record_refusal(now);
                Verdict::Refuse { wait }
            }
        }
    }

    fn count(&mut self, now: Duration, units: u32, concerns: impl Fn(&Window) -> bool) {
        for window in self.windows.iter_mut().filter(|window| concerns(window)) {
            window.count(now, units);
        }
    }
}

#[cfg(test)]
mod tests;
