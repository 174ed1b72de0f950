//! The simulated provider: model, record and clock behind one lock.
//!
//! Promise: arrivals are judged and recorded in one order, that of the instants given to them.
//! The instant is read before the lock is waited for, so that a crowded lock does not look like
//! a burst; two arrivals that overtake each other on the way share the later instant.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::request::Parts;

use crate::config::{ConfigError, Document, Plan, Settings, UnitCost, parse_document, take_force};
use crate::header_bytes::HeaderBytes;
use crate::message::units_of;
use crate::record::timeline::TimelineView;
use crate::record::{Arrival, ArrivalView, RequestView};

mod state;
mod ticket;
mod views;

use state::{Opened, State};
pub use ticket::{Answer, Ticket};
pub use views::{FullReport, ModelView, WindowReport};

#[derive(Debug)]
pub struct Provider {
    state: Mutex<State>,
}

impl Provider {
    pub fn new(settings: Settings) -> Result<Arc<Self>, ConfigError> {
        let (plan, behaviour) = Plan::new(settings)?;
        Ok(Arc::new(Self { state: Mutex::new(State::new(plan, behaviour)) }))
    }

    /// Judges and records a request whose headers have just been read.
    pub fn arrive(self: &Arc<Self>, request: &Parts) -> Ticket {
        let now = Instant::now();
        let headers = HeaderBytes::new(&request.headers);
        let path = match request.uri.path_and_query() {
            Some(path) => path.as_str(),
            // CONNECT names a host only.
            None => request.uri.authority().map_or("", |host| host.as_str()),
        };
        let mut state = self.lock();
        let at = state.advance(now);
        let units = match &state.cost {
            UnitCost::Header(name) => {
                request.headers.get(name).and_then(|text| units_of(text.to_str().ok()?))
            }
            UnitCost::One | UnitCost::Json(_) => None,
        };
        let units = units.unwrap_or(1);
        let Opened { answer, outcome, status, in_flight } = state.open(at, units);
        let id = state.record.arrive(Arrival {
            at_ns: nanos(at),
            outcome,
            status,
            method: &request.method,
            path,
            headers,
        });
        Ticket::new(self.clone(), &mut state, id, units, answer, in_flight)
    }

    pub fn report(&self) -> FullReport {
        let mut state = self.lock();
        let now = state.advance(Instant::now());
        state.report(now)
    }

    /// Arrivals per 100 ms.
    pub fn timeline(&self) -> TimelineView {
        let mut state = self.lock();
        state.advance(Instant::now());
        state.record.timeline()
    }

    /// A piece of the log of arrivals, the generation it belongs to, and whether the log is cut.
    pub fn arrivals(&self, from: usize, max: usize) -> (Vec<ArrivalView>, u64, bool) {
        let mut state = self.lock();
        state.advance(Instant::now());
        let piece = state.record.arrivals(from, max);
        (piece, state.generation, state.record.log_truncated())
    }

    pub fn requests(&self, last: usize) -> Vec<RequestView> {
        let mut state = self.lock();
        state.advance(Instant::now());
        state.record.requests(last)
    }

    pub fn model(&self) -> ModelView {
        let mut state = self.lock();
        state.advance(Instant::now());
        state.model_view()
    }

    /// Applies a JSON document of changes, wholly or not at all.
    pub fn change(&self, body: &[u8]) -> Result<ModelView, ConfigError> {
        let mut given: Document = parse_document(body)?;
        let force = take_force(&mut given)?;
        let mut state = self.lock();
        let now = state.advance(Instant::now());
        let (plan, behaviour) = state.plan.change(&given, now)?;
        state.plan = plan;
        state.adopt(behaviour);
        state.change_force(force);
        // A schedule may begin with a step for this very instant.
        state.advance(Instant::now());
        Ok(state.model_view())
    }

    /// Begins a new measurement with the settings as they were written, time starting at zero.
    pub fn reset(&self) -> Result<(), ConfigError> {
        let mut state = self.lock();
        let (plan, behaviour) = state.plan.reset()?;
        let generation = state.generation + 1;
        *state = State { generation, ..State::new(plan, behaviour) };
        Ok(())
    }

    /// The provider's counters restart: fixed windows begin at `phase`, or now.
    pub fn restart(&self, phase: Option<Duration>) {
        let mut state = self.lock();
        let now = state.advance(Instant::now());
        state.model.restart(now, phase);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
