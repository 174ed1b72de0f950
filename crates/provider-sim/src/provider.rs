//! The simulated provider: model, record and clock behind one lock.
//!
//! Promise: arrivals are judged and recorded in one order, that of the instants given to them.
//! The instant is read before the lock is waited for, so that a crowded lock does not look like
//! a burst; two arrivals that overtake each other on the way share the later instant.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Serialize;

use crate::config::{
    Behaviour, Change, ConfigError, Force, ForceChange, Forced, ForcedReply, Refusal, Settings,
    merge,
};
use crate::header_bytes::HeaderBytes;
use crate::model::{Model, Verdict};
use crate::record::{Arrival, ArrivalView, Outcome, Record, Report, RequestView, seconds};

#[derive(Debug)]
pub struct Provider {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Time zero of everything reported: the start, or the last reset.
    origin: Instant,
    last: Duration,
    /// Resets so far: a request that began before one must not count after it.
    generation: u64,
    settings: Settings,
    refusal: Refusal,
    latency: Duration,
    model: Model,
    forced: Option<Forced>,
    record: Record,
}

/// What to reply, decided when the headers arrived.
#[derive(Debug, Clone)]
pub enum Answer {
    Accepted,
    Refused(Refusal),
    Suspended { remaining: Duration },
    Forced(ForcedReply),
}

/// One request between its headers and the end of its body. Dropped early (the sender went
/// away), it stops waiting for its class.
#[derive(Debug)]
pub struct Ticket {
    provider: Arc<Provider>,
    generation: u64,
    pub id: u64,
    pub answer: Answer,
    pub latency: Duration,
    settled: bool,
}

#[derive(Debug, Serialize)]
pub struct FullReport {
    #[serde(flatten)]
    pub arrived: Report,
    /// Now.
    pub suspended: bool,
    /// When it first happened; stays after the suspension is over.
    pub suspended_after_s: Option<f64>,
    pub elapsed_s: f64,
}

#[derive(Debug, Serialize)]
pub struct ModelView {
    #[serde(flatten)]
    pub settings: Settings,
    /// With the `times` that are left.
    pub force: Option<Force>,
}

impl Provider {
    pub fn new(settings: Settings) -> Result<Arc<Self>, ConfigError> {
        let Behaviour { model, refusal, latency } = settings.validate()?;
        Ok(Arc::new(Self {
            state: Mutex::new(State {
                origin: Instant::now(),
                last: Duration::ZERO,
                generation: 0,
                settings,
                refusal,
                latency,
                model: Model::new(model),
                forced: None,
                record: Record::default(),
            }),
        }))
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
        let at = state.since_origin(now);
        let (answer, outcome, status) = state.judge(at);
        let id = state.record.arrive(Arrival {
            at_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
            outcome,
            status,
            method: &request.method,
            path,
            headers,
        });
        Ticket {
            provider: self.clone(),
            generation: state.generation,
            id,
            answer,
            latency: state.latency,
            settled: false,
        }
    }

    pub fn report(&self) -> FullReport {
        let mut state = self.lock();
        let now = state.since_origin(Instant::now());
        FullReport {
            arrived: state.record.report(),
            suspended: state.model.suspended_for(now).is_some(),
            suspended_after_s: state.model.first_suspended_at().map(|at| at.as_secs_f64()),
            elapsed_s: seconds(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// A piece of the log of arrivals, the generation it belongs to, and whether the log is cut.
    pub fn arrivals(&self, from: usize, max: usize) -> (Vec<ArrivalView>, u64, bool) {
        let state = self.lock();
        let piece = state.record.arrivals(from, max);
        (piece, state.generation, state.record.log_truncated())
    }

    pub fn requests(&self, last: usize) -> Vec<RequestView> {
        self.lock().record.requests(last)
    }

    pub fn model(&self) -> ModelView {
        self.lock().view()
    }

    /// Applies a JSON document of changes, wholly or not at all.
    pub fn change(&self, body: &[u8]) -> Result<ModelView, ConfigError> {
        let mut state = self.lock();
        let Change { settings, behaviour, force } = merge(&state.settings, body)?;
        state.settings = settings;
        state.refusal = behaviour.refusal;
        state.latency = behaviour.latency;
        state.model.reconfigure(behaviour.model);
        match force {
            ForceChange::Keep => {}
            ForceChange::Clear => state.forced = None,
            ForceChange::Set(forced) => state.forced = Some(*forced),
        }
        Ok(state.view())
    }

    /// Begins a new measurement with the same settings, time starting at zero.
    pub fn reset(&self) -> Result<(), ConfigError> {
        let mut state = self.lock();
        state.model = Model::new(state.settings.validate()?.model);
        state.forced = None;
        state.record = Record::default();
        state.generation += 1;
        state.last = Duration::ZERO;
        state.origin = Instant::now();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn since_origin(&mut self, now: Instant) -> Duration {
        self.last = self.last.max(now.saturating_duration_since(self.origin));
        self.last
    }

    fn judge(&mut self, now: Duration) -> (Answer, Outcome, StatusCode) {
        if let Some(reply) = self.take_forced() {
            let status = reply.status;
            let outcome = self.forced_outcome(status);
            match outcome {
                Outcome::Accepted => self.model.record_acceptance(now),
                Outcome::Refused => self.model.record_refusal(now),
                Outcome::Failed => {}
            }
            return (Answer::Forced(reply), outcome, status);
        }
        match self.model.arrive(now) {
            Verdict::Accept => (Answer::Accepted, Outcome::Accepted, StatusCode::OK),
            Verdict::Refuse => {
                let refusal = self.refusal.clone();
                let status = refusal.status;
                (Answer::Refused(refusal), Outcome::Refused, status)
            }
            Verdict::Suspended { remaining } => {
                (Answer::Suspended { remaining }, Outcome::Refused, StatusCode::TOO_MANY_REQUESTS)
            }
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
        if status == StatusCode::TOO_MANY_REQUESTS || status == self.refusal.status {
            Outcome::Refused
        } else if status.is_success() {
            Outcome::Accepted
        } else {
            Outcome::Failed
        }
    }

    fn view(&self) -> ModelView {
        ModelView {
            settings: self.settings.clone(),
            force: self.forced.as_ref().map(|forced| forced.written.clone()),
        }
    }
}

impl Ticket {
    pub fn body(&self, bytes: usize) {
        let mut state = self.provider.lock();
        if state.generation == self.generation {
            state.record.body(self.id, bytes as u64);
        }
    }

    /// The body has ended, and is of `class`.
    pub fn complete(&mut self, class: Option<&str>) {
        self.settle(class, true);
    }

    fn settle(&mut self, class: Option<&str>, complete: bool) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let mut state = self.provider.lock();
        if state.generation == self.generation {
            state.record.settle(self.id, class, complete);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle(None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn arrive(provider: &Arc<Provider>) -> Ticket {
        provider.arrive(&Request::new(()).into_parts().0)
    }

    fn provider() -> Result<Arc<Provider>, ConfigError> {
        Provider::new(Settings::default())
    }

    #[test]
    fn a_request_that_began_before_a_reset_does_not_count_after_it() -> Result<(), ConfigError> {
        let provider = provider()?;
        let mut old = arrive(&provider);
        provider.reset()?;
        let mut new = arrive(&provider);
        old.body(100);
        old.complete(Some("otp"));
        new.complete(Some("marketing"));
        let report = provider.report().arrived;
        assert_eq!((report.total.arrivals, report.body_bytes), (1, 0));
        assert!(!report.by_class.contains_key("otp"));
        Ok(())
    }

    #[test]
    fn a_request_whose_sender_goes_away_holds_up_no_other() -> Result<(), ConfigError> {
        let provider = provider()?;
        let gone = arrive(&provider);
        arrive(&provider).complete(Some("otp"));
        assert_eq!(provider.lock().record.waiting(), 2);
        drop(gone);
        assert_eq!(provider.lock().record.waiting(), 0);
        Ok(())
    }

    #[test]
    fn forced_replies_count_by_their_status_and_run_out() -> Result<(), ConfigError> {
        let provider = provider()?;
        for status in [429, 503, 202] {
            provider.change(format!(r#"{{"force":{{"status":{status}}}}}"#).as_bytes())?;
            assert!(matches!(arrive(&provider).answer, Answer::Forced(_)));
            assert!(provider.model().force.is_none());
        }
        assert!(matches!(arrive(&provider).answer, Answer::Accepted));
        let total = provider.report().arrived.total;
        assert_eq!((total.accepted, total.refused, total.failed), (2, 1, 1));
        Ok(())
    }

    #[test]
    fn a_refused_change_changes_nothing() -> Result<(), ConfigError> {
        let provider = provider()?;
        let bad = br#"{"limit":5,"force":{"status":429},"status":7}"#;
        assert!(provider.change(bad).is_err());
        let view = provider.model();
        assert_eq!((view.settings.limit, view.force), (100, None));
        Ok(())
    }

    #[test]
    fn forced_refusals_suspend() -> Result<(), ConfigError> {
        let provider = provider()?;
        provider.change(br#"{"suspend_after":2,"force":{"status":429,"times":3}}"#)?;
        for _ in 0..3 {
            arrive(&provider);
        }
        assert!(matches!(arrive(&provider).answer, Answer::Suspended { .. }));
        assert!(provider.report().suspended);
        provider.reset()?;
        assert!(!provider.report().suspended);
        assert_eq!(provider.model().settings.suspend_after, Some(2));
        Ok(())
    }
}
