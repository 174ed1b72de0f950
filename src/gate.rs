//! What the whole gateway knows of one limit, and what that means for a request.
//!
//! Promise: a request is refused from memory only when the decider would refuse it too: a TAT moves
//! forward only, so a refusal stays true until its time has come. It is asked again after a second
//! at the latest, for a store may have lost its state. A pause the provider asked of this gateway
//! ends by time alone, and a store that lost its memory is told of it again.
//!
//! The state is shared by all workers of the process (`record`). Every change is a bounded
//! compare-and-swap.

use limits::{
    Micros,
    decision::{Reason, Rules},
    gcra::Gcra,
    lease::{Call, Duty},
    members::{Standing, Terms},
    policy::Limit,
};

use self::shared::Shared;
pub use self::shared::SharedData;
use crate::{
    calls::Answer,
    config::Own,
    fallback,
    record::{ClassRecord, Record},
};

/// A refusal is believed no longer than this without asking again.
const RECHECK: Micros = Micros::SECOND;
/// A gateway that is paused asks nobody; so often it still looks whether the store knows of the stop.
const PAUSED_PROBE: Micros = Micros::SECOND;
/// How exactly it is known when a gateway was last in use.
const TOUCH: Micros = Micros::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Only the decider can tell.
    Ask,
    /// Goes out on the gateway's own share.
    Forward,
    Refuse(Refused),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Time after which a new attempt makes sense.
    pub wait: Micros,
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    Decided(Reason),
    /// The decider cannot be asked, and the gateway's own share is used up.
    Fallback,
    /// More wait already than can be answered.
    QueueFull,
}

/// What a decider's answer says about one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    pub wait: Micros,
    pub reason: Option<Reason>,
}

/// One limit's state in the gateway.
#[derive(Debug, Clone)]
pub struct Gate {
    shared: Shared,
    own: Own,
    /// Of the leased fallback, if the limit has one.
    terms: Option<Terms>,
    /// Per class: two grants are no closer than this once the burst is used up.
    spacing: Vec<Micros>,
    /// A request has come since the last [`touch`](Gate::touch).
    used: bool,
}

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// With a deadline it renews our lease.
    Ask { deadline: Option<Micros> },
    /// For nothing, first: the store's clock is not known.
    ReadClock,
    /// Not at all: the decider has become unreachable meanwhile.
    Not,
}

/// What an answer changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Learnt {
    /// The decider had been unreachable.
    pub recovered: bool,
    /// The store has forgotten a stop: so much is left of it.
    pub forgotten: Option<Micros>,
}

impl Cause {
    /// As callers and logs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decided(reason) => reason.name(),
            Self::Fallback => "decider_unavailable",
            Self::QueueFull => "queue_full",
        }
    }

    /// As a person reads it.
    pub const fn explained(self) -> &'static str {
        match self {
            Self::Decided(Reason::Rate) => "the account is at its rate",
            Self::Decided(Reason::ClassRate) => "the class is at its share of the account's rate",
            Self::Decided(Reason::Penalty) => "the provider asked everyone to stop",
            Self::Fallback => {
                "nobody can tell how much the others send; this gateway's safe share is used"
            }
            Self::QueueFull => "too many requests wait for a decision",
        }
    }
}

impl Gate {
    pub fn new(limit: &Limit, policy: &str, own: Own) -> Self {
        let rules = Rules::of(limit);
        let spacing = rules.classes.iter().map(|own| {
            let all = rules.limit.iter().chain(own).map(Gcra::emission_interval);
            all.min().unwrap_or_default()
        });
        let policy = u64::from_str_radix(policy, 16).unwrap_or(0);
        let classes = rules.classes.len();
        let shared = Shared::new(format!("weir.limit.{}", limit.name), policy, classes);
        Self { shared, own, terms: limit.terms, spacing: spacing.collect(), used: false }
    }

    /// Where a request of `class` goes at `now`.
    pub fn admit(&mut self, shared: &impl SharedData, class: usize, now: Micros) -> Admission {
        self.used = true;
        let record = self.shared.look(shared, now);
        if now < record.pause_until {
            return refuse(record.pause_until.minus(now), Cause::Decided(Reason::Penalty));
        }
        if !record.lease.asks() {
            return self.without_decider(shared, class, now);
        }
        match record.classes.get(class) {
            Some(known) if now < known.recheck_at => {
                let until = known.retry_at.max(known.recheck_at);
                refuse(until.minus(now), Cause::Decided(reason(known.reason)))
            }
            _ => Admission::Ask,
        }
    }

    /// One worker asks for these classes now: the others need not, for what it is granted or refused
    /// is true for them too. Where a class has just become due, one grant at most is there to be
    /// had before its spacing has passed.
    pub fn ask(&mut self, shared: &impl SharedData, wants: &[u64], now: Micros) -> Asking {
        let (spacing, terms) = (&self.spacing, &self.terms);
        let asking = self.shared.update(shared, |record| {
            if !record.lease.asks() {
                return Asking::Not;
            }
            let deadline = terms.as_ref().and_then(|terms| record.lease.renew(terms, now));
            if terms.is_some() && deadline.is_none() && now >= record.lease.leaving_until {
                return Asking::ReadClock;
            }
            record.lease.used_at = now;
            let asked = record.classes.iter_mut().zip(spacing).zip(wants);
            for ((class, spacing), _) in asked.filter(|(_, wants)| **wants > 0) {
                let next = class.retry_at.plus(*spacing);
                let decided_by_rate = class.reason != number(Reason::Penalty);
                if decided_by_rate && class.recheck_at <= now && now < next {
                    class.recheck_at = next.min(now.plus(RECHECK));
                }
            }
            Asking::Ask { deadline }
        });
        asking.unwrap_or(Asking::Ask { deadline: None })
    }

    /// Where a request goes that could not be decided: on the gateway's own share or nowhere.
    pub fn without_decider(
        &mut self,
        shared: &impl SharedData,
        class: usize,
        now: Micros,
    ) -> Admission {
        let own = &self.own;
        let decided = self.shared.update(shared, |record| {
            if record.lease.asks() {
                // It is back. What was its own share is so no more.
                return Admission::Ask;
            }
            let stop = record.pause_until.max(record.learnt_stop_until);
            if now < stop {
                return refuse(stop.minus(now), Cause::Decided(Reason::Penalty));
            }
            match fallback::decide(own, record, class, now) {
                Ok(()) => Admission::Forward,
                Err(wait) => refuse(wait, Cause::Fallback),
            }
        });
        decided.unwrap_or_else(|| refuse(Micros::SECOND, Cause::Fallback))
    }

    /// Takes in an answer: what it says of each class, the stop it tells of, and whether we are a
    /// member. `renewing_since` is when the call was sent, if it was to renew our lease.
    pub fn learn(
        &mut self,
        shared: &impl SharedData,
        answer: &Answer,
        renewing_since: Option<Micros>,
        now: Micros,
    ) -> Learnt {
        let terms = &self.terms;
        let learnt = self.shared.update(shared, |record| {
            let recovered = record.lease.answered(answer.now, now);
            if let (Some(terms), Some(since)) = (terms, renewing_since)
                && answer.standing != Standing::Late
            {
                record.lease.renewed(terms, since, answer.standing == Standing::Member);
            }
            let forgotten = forgotten(record, answer, now);
            if !answer.penalty.is_zero() {
                let until = now.plus(answer.penalty);
                record.learnt_stop_until = record.learnt_stop_until.max(until);
            }
            for (class, known) in record.classes.iter_mut().zip(&answer.known) {
                class.learn(*known, now);
            }
            Learnt { recovered, forgotten }
        });
        learnt.unwrap_or_default()
    }

    /// The decider did not answer. True if it had been answering until now.
    pub fn failed(&mut self, shared: &impl SharedData, call: Call, now: Micros) -> bool {
        let failed = self.shared.update(shared, |record| {
            let opened = record.lease.failed(call, now);
            if opened {
                // What it refused before says nothing about the state it returns with.
                record.classes.iter_mut().for_each(|class| class.recheck_at = Micros::ZERO);
            }
            opened
        });
        failed.unwrap_or(false)
    }

    /// Is a probe due? True for one worker only.
    pub fn claim_probe(&mut self, shared: &impl SharedData, now: Micros) -> bool {
        let due = |record: &mut Record| {
            let lease = &mut record.lease;
            if !lease.asks() {
                return lease.claim_probe(now);
            }
            let since = lease.heard_at.max(lease.probe_at);
            let due = now < record.pause_until && now >= since.plus(PAUSED_PROBE);
            if due {
                lease.probe_at = now;
            }
            due
        };
        if !due(&mut self.shared.look(shared, now).clone()) {
            return false;
        }
        self.shared.update(shared, due).unwrap_or(false)
    }

    /// What this gateway owes the store, with the deadline of the call. For one worker only.
    pub fn claim_duty(&mut self, shared: &impl SharedData, now: Micros) -> Option<(Duty, Micros)> {
        let terms = self.terms.as_ref()?;
        self.shared.look(shared, now).lease.duty(terms, now)?;
        let claimed = self.shared.update(shared, |record| {
            let duty = record.lease.duty(terms, now)?;
            let deadline = match duty {
                Duty::Renew => record.lease.renew(terms, now),
                Duty::Leave => record.lease.leave(terms, now),
            };
            Some((duty, deadline?))
        });
        claimed.flatten()
    }

    /// Tells the other workers that this one is in use.
    pub fn touch(&mut self, shared: &impl SharedData, now: Micros) {
        let used = std::mem::take(&mut self.used) && self.terms.is_some();
        if used && self.shared.look(shared, now).lease.used_at.plus(TOUCH) <= now {
            let _ = self.shared.update(shared, |record| record.lease.used_at = now);
        }
    }

    /// The provider asks for a pause. Never shortens one; returns when the pause ends.
    pub fn pause(&mut self, shared: &impl SharedData, pause: Micros, now: Micros) -> Micros {
        let until = self.shared.update(shared, |record| {
            record.pause_until = record.pause_until.max(now.plus(pause));
            record.pause_until
        });
        until.unwrap_or(now.plus(pause))
    }
}

impl ClassRecord {
    fn learn(&mut self, known: Known, now: Micros) {
        let retry_at = now.plus(known.wait);
        if known.wait.is_zero() {
            // Whatever was claimed: one more could go.
            self.recheck_at = self.recheck_at.min(self.retry_at);
            return;
        }
        // An answer that was overtaken by a later one must not shorten what that one said.
        if retry_at > self.retry_at || now >= self.recheck_at {
            self.retry_at = retry_at;
            self.recheck_at = retry_at.min(now.plus(RECHECK));
            self.reason = known.reason.map_or(0, number);
        }
    }
}

/// A store of another memory than the one we knew: what is left of the stop that it does not know
/// of. From here on that stop is our own.
fn forgotten(record: &mut Record, answer: &Answer, now: Micros) -> Option<Micros> {
    let before = std::mem::replace(&mut record.born, answer.born);
    let stop = record.pause_until.max(record.learnt_stop_until);
    let lost = !before.is_zero() && before != answer.born && stop > now.plus(answer.penalty);
    if lost {
        record.pause_until = stop;
    }
    lost.then(|| stop.minus(now))
}

fn refuse(wait: Micros, cause: Cause) -> Admission {
    Admission::Refuse(Refused { wait, cause })
}

const REASONS: [Reason; 3] = [Reason::Rate, Reason::ClassRate, Reason::Penalty];

fn number(reason: Reason) -> u64 {
    REASONS.iter().position(|known| *known == reason).unwrap_or(0) as u64
}

fn reason(number: u64) -> Reason {
    let index = usize::try_from(number).unwrap_or(0);
    REASONS.get(index).copied().unwrap_or(Reason::Rate)
}

mod shared;

#[cfg(test)]
pub mod tests;
