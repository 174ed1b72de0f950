//! One call, from its headers to its reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::Provider;
use super::state::{State, Undecided};
use crate::config::{ForcedReply, UnitCost};
use crate::message::Message;
use crate::model::Counted;
use crate::record::Outcome;
use crate::reply::Refusal;

/// What to reply.
#[derive(Debug, Clone)]
pub enum Answer {
    /// `lost`: the connection is closed instead of a reply.
    Accepted {
        lost: bool,
    },
    Refused {
        refusal: Arc<Refusal>,
        wait: Duration,
        suspended: bool,
    },
    Forced(ForcedReply),
    /// More calls in flight than the simulator holds.
    Full,
    /// A reset came before the verdict.
    Gone,
}

/// One call. Dropped before its body has ended (the sender went away), it is over; dropped
/// after that, the provider works on: it cannot know.
#[derive(Debug)]
pub struct Ticket {
    provider: Arc<Provider>,
    generation: u64,
    /// Time zero of the generation.
    origin: Instant,
    pub id: u64,
    units: u32,
    /// The JSON field that says what a call costs.
    pub cost_field: Option<Arc<str>>,
    answer: Option<Answer>,
    in_flight: bool,
    progress: Progress,
    /// Seconds that the provider's clock is ahead.
    pub clock_offset_s: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Reading,
    Working,
    Answered,
}

impl Ticket {
    pub(super) fn new(
        provider: Arc<Provider>,
        state: &mut State,
        id: u64,
        units: u32,
        answer: Option<Answer>,
        in_flight: bool,
    ) -> Self {
        if answer.is_none() {
            state.undecided.insert(id, Undecided::default());
        }
        let cost_field = match &state.cost {
            UnitCost::Json(field) => Some(field.clone()),
            UnitCost::One | UnitCost::Header(_) => None,
        };
        Self {
            provider,
            generation: state.generation,
            origin: state.origin,
            id,
            units,
            cost_field,
            answer,
            in_flight,
            progress: Progress::Reading,
            clock_offset_s: state.clock_offset_s,
        }
    }

    pub fn body(&self, bytes: usize) {
        let mut state = self.provider.lock();
        if state.generation == self.generation {
            state.record.body(self.id, bytes as u64);
        }
    }

    /// The body has ended and says `message`. Returns when the reply is due.
    pub fn complete(&mut self, message: &Message) -> Instant {
        let now = Instant::now();
        self.progress = Progress::Working;
        let provider = self.provider.clone();
        let mut state = provider.lock();
        if state.generation != self.generation {
            return now;
        }
        let now = state.advance(now);
        state.record.settle(self.id, message.class.as_deref(), true);
        self.units = message.units.unwrap_or(self.units);
        let due = self.origin + self.work(&mut state, now, message);
        // What takes no time is over already.
        state.advance_to(now);
        due
    }

    /// What to reply, once its time has come.
    pub fn answer(&mut self) -> Answer {
        self.progress = Progress::Answered;
        if let Some(answer) = self.answer.take() {
            return answer;
        }
        let now = Instant::now();
        let mut state = self.provider.lock();
        if state.generation != self.generation {
            return Answer::Gone;
        }
        state.advance(now);
        state.undecided.remove(&self.id).and_then(|call| call.answer).unwrap_or(Answer::Gone)
    }

    /// The provider works on the call, up to the instant returned.
    fn work(&mut self, state: &mut State, now: Duration, message: &Message) -> Duration {
        let end = state.pace.end_of(now);
        let mut undecided = None;
        if self.answer.is_none() {
            if state.model.counted() == Counted::Completion {
                undecided = Some(self.units);
                if let Some(call) = state.undecided.get_mut(&self.id) {
                    call.message = message.id;
                }
            } else {
                let (answer, outcome) = state.charge(now, self.id, self.units);
                state.undecided.remove(&self.id);
                if outcome != Outcome::Accepted {
                    self.leave(state);
                }
                self.answer = Some(answer);
            }
        }
        if let (true, Some(id), None) = (self.in_flight, message.id, undecided) {
            state.messages.accepted(id);
        }
        if self.in_flight {
            state.model.hold(self.id, end, undecided);
            self.in_flight = false;
        }
        end
    }

    fn leave(&mut self, state: &mut State) {
        if std::mem::replace(&mut self.in_flight, false) {
            state.model.release();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let decided = self.answer.is_some();
        if self.progress == Progress::Answered || (self.progress == Progress::Working && decided) {
            return;
        }
        let provider = self.provider.clone();
        let mut state = provider.lock();
        if state.generation != self.generation {
            return;
        }
        if self.progress == Progress::Working {
            state.abandon(self.id);
            return;
        }
        state.record.settle(self.id, None, false);
        if !decided {
            state.undecided.remove(&self.id);
            state.record.decide(self.id, Outcome::Failed, StatusCode::BAD_REQUEST);
        }
        self.leave(&mut state);
    }
}
