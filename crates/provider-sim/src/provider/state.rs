//! What the lock guards.
//!
//! Promise: whatever was due before an instant has happened before anything is asked at it:
//! calls in flight have ended and the schedule's steps were taken, each at its own time and in
//! their order, however late somebody came to look.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::nanos;
use super::ticket::Answer;
use crate::config::{Behaviour, ForceChange, Forced, ForcedReply, Plan, UnitCost};
use crate::losses::Losses;
use crate::model::{Finished, Model, Pace, Verdict};
use crate::record::messages::{MessageId, Messages};
use crate::record::peaks::Peaks;
use crate::record::{Outcome, Record};
use crate::reply::Refusal;

/// Calls in flight beyond this are turned away: senders that give up leave theirs behind.
pub const MAX_IN_FLIGHT: usize = 100_000;
/// So that jitter and losses are not the same numbers.
const LOSS_SEED: u64 = 0x6c6f_7373;

#[derive(Debug)]
pub struct State {
    /// Time zero of everything reported: the start, or the last reset.
    pub origin: Instant,
    pub last: Duration,
    /// Resets so far: a request that began before one must not count after it.
    pub generation: u64,
    pub plan: Plan,
    pub cost: UnitCost,
    pub refusal: Arc<Refusal>,
    pub suspended: Arc<Refusal>,
    pub clock_offset_s: i64,
    pub seed: u64,
    pub pace: Pace,
    pub losses: Losses,
    pub model: Model,
    pub forced: Option<Forced>,
    pub record: Record,
    pub peaks: Peaks,
    pub messages: Messages,
    pub accepted_units: u64,
    pub replies_lost: u64,
    /// Calls whose verdict is to come, by their number.
    pub undecided: HashMap<u64, Undecided>,
}

#[derive(Debug, Default)]
pub struct Undecided {
    pub message: Option<MessageId>,
    pub answer: Option<Answer>,
    /// Nobody will take the answer.
    pub abandoned: bool,
}

/// A call whose headers have been read.
#[derive(Debug)]
pub struct Opened {
    /// None: later.
    pub answer: Option<Answer>,
    pub outcome: Outcome,
    pub status: Option<StatusCode>,
    pub in_flight: bool,
}

impl State {
    pub fn new(plan: Plan, behaviour: Behaviour) -> Self {
        let seed = behaviour.seed;
        let mut state = Self {
            origin: Instant::now(),
            last: Duration::ZERO,
            generation: 0,
            plan,
            cost: behaviour.cost.clone(),
            refusal: behaviour.refusal.clone(),
            suspended: behaviour.suspended.clone(),
            clock_offset_s: behaviour.clock_offset_s,
            seed,
            pace: Pace::new(behaviour.pace, seed),
            losses: Losses::new(behaviour.losses, seed ^ LOSS_SEED),
            model: Model::new(behaviour.model.clone()),
            forced: None,
            record: Record::default(),
            peaks: Peaks::default(),
            messages: Messages::default(),
            accepted_units: 0,
            replies_lost: 0,
            undecided: HashMap::new(),
        };
        state.watch_peaks();
        state
    }

    /// Does what was due, and tells the time since the origin.
    pub fn advance(&mut self, now: Instant) -> Duration {
        let now = self.last.max(now.saturating_duration_since(self.origin));
        self.advance_to(now);
        now
    }

    pub fn advance_to(&mut self, now: Duration) {
        loop {
            let step = self.plan.due().filter(|at| *at <= now);
            let end = self.model.next_end().filter(|at| *at <= now);
            match (step, end) {
                (None, None) => break,
                (Some(step), end) if end.is_none_or(|end| step <= end) => {
                    if let Some(behaviour) = self.plan.step() {
                        self.adopt(behaviour);
                    }
                }
                _ => {
                    if let Some(finished) = self.model.end_next() {
                        self.finish(finished);
                    }
                }
            }
        }
        self.last = now;
    }

    pub fn adopt(&mut self, behaviour: Behaviour) {
        let Behaviour { model, pace, losses, seed, cost, refusal, suspended, clock_offset_s } =
            behaviour;
        if seed != self.seed {
            self.seed = seed;
            self.pace = Pace::new(pace, seed);
            self.losses = Losses::new(losses, seed ^ LOSS_SEED);
        }
        self.pace.reconfigure(pace);
        self.losses.reconfigure(losses);
        self.model.reconfigure(model);
        self.cost = cost;
        self.refusal = refusal;
        self.suspended = suspended;
        self.clock_offset_s = clock_offset_s;
        self.watch_peaks();
    }

    pub fn change_force(&mut self, change: ForceChange) {
        match change {
            ForceChange::Keep => {}
            ForceChange::Clear => self.forced = None,
            ForceChange::Set(forced) => self.forced = Some(*forced),
        }
    }

    /// Judges a call by its headers, as far as they decide.
    pub fn open(&mut self, now: Duration, units: u32) -> Opened {
        if self.model.in_flight() >= MAX_IN_FLIGHT {
            let answer = Answer::Full;
            let (outcome, status) = (Outcome::Failed, Some(StatusCode::SERVICE_UNAVAILABLE));
            return Opened { answer: Some(answer), outcome, status, in_flight: false };
        }
        if let Some(reply) = self.take_forced() {
            return self.open_forced(now, units, reply);
        }
        match self.model.arrive(now, units) {
            None => {
                Opened { answer: None, outcome: Outcome::Pending, status: None, in_flight: true }
            }
            Some(verdict) => {
                let (answer, outcome, status) = self.pronounce(now, units, verdict);
                let in_flight = outcome == Outcome::Accepted;
                Opened { answer: Some(answer), outcome, status: Some(status), in_flight }
            }
        }
    }

    /// Judges call `id`, which is in flight without a verdict, now that its body has come.
    pub fn charge(&mut self, now: Duration, id: u64, units: u32) -> (Answer, Outcome) {
        let verdict = self.model.charge(now, units);
        self.decide(now, id, units, verdict)
    }

    /// Nobody will take the answer to call `id`, but it may count yet.
    pub fn abandon(&mut self, id: u64) {
        match self.undecided.get_mut(&id) {
            Some(call) if call.answer.is_none() => call.abandoned = true,
            Some(_) => drop(self.undecided.remove(&id)),
            None => {}
        }
    }

    fn finish(&mut self, Finished { id, at, verdict }: Finished) {
        let Some((verdict, units)) = verdict else {
            return;
        };
        let (answer, outcome) = self.decide(at, id, units, verdict);
        let Some(call) = self.undecided.get_mut(&id) else {
            return;
        };
        if let (Outcome::Accepted, Some(message)) = (outcome, call.message) {
            self.messages.accepted(message);
        }
        call.answer = Some(answer);
        if call.abandoned {
            self.undecided.remove(&id);
        }
    }

    fn decide(&mut self, at: Duration, id: u64, units: u32, verdict: Verdict) -> (Answer, Outcome) {
        let (answer, outcome, status) = self.pronounce(at, units, verdict);
        self.record.decide(id, outcome, status);
        (answer, outcome)
    }

    /// What a verdict means for the reply and for the counters.
    fn pronounce(
        &mut self,
        at: Duration,
        units: u32,
        verdict: Verdict,
    ) -> (Answer, Outcome, StatusCode) {
        let (refusal, wait) = match verdict {
            Verdict::Accept => {
                self.note(at, units, true);
                let lost = self.losses.loses_next();
                self.replies_lost += u64::from(lost);
                return (Answer::Accepted { lost }, Outcome::Accepted, StatusCode::OK);
            }
            Verdict::Refuse { wait } => (self.refusal.clone(), wait),
            Verdict::Suspended { remaining } => (self.suspended.clone(), remaining),
        };
        self.note(at, units, false);
        let status = refusal.status;
        let suspended = matches!(verdict, Verdict::Suspended { .. });
        (Answer::Refused { refusal, wait, suspended }, Outcome::Refused, status)
    }

    fn open_forced(&mut self, now: Duration, units: u32, reply: ForcedReply) -> Opened {
        let outcome = self.forced_outcome(reply.status);
        match outcome {
            Outcome::Accepted => self.model.record_acceptance(now, units),
            Outcome::Refused => self.model.record_refusal(now),
            Outcome::Failed | Outcome::Pending => {}
        }
        let in_flight = outcome == Outcome::Accepted;
        self.note(now, units, in_flight);
        let status = Some(reply.status);
        Opened { answer: Some(Answer::Forced(reply)), outcome, status, in_flight }
    }

    fn note(&mut self, at: Duration, units: u32, accepted: bool) {
        self.peaks.add(nanos(at), units, accepted);
        if accepted {
            self.accepted_units += u64::from(units);
        }
    }

    fn take_forced(&mut self) -> Option<ForcedReply> {
        let forced = self.forced.as_mut()?;
        let reply = forced.reply.clone();
        forced.written.times -= 1;
        if forced.written.times == 0 {
            self.forced = None;
        }
        Some(reply)
    }

    fn forced_outcome(&self, status: StatusCode) -> Outcome {
        if status == StatusCode::TOO_MANY_REQUESTS {
            Outcome::Refused
        } else if status.is_success() {
            Outcome::Accepted
        } else if status == self.refusal.status {
            Outcome::Refused
        } else {
            Outcome::Failed
        }
    }

    fn watch_peaks(&mut self) {
        // Validated settings have windows.
        let windows = self.plan.settings().all_windows().unwrap_or_default();
        self.peaks.watch(windows.iter().filter_map(|window| window.length()));
    }
}
