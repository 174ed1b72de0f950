//! What the whole gateway knows of one limit, and what that means for a request.
//!
//! Promise: a request is refused from memory only when the decider would refuse it too: a TAT moves
//! forward only, so a refusal stays true until its time has come. It is asked again after a second
//! at the latest, for a store may have lost its state. A pause the provider asked of this gateway
//! ends by time alone.
//!
//! The state is shared by all workers of the process (`record`). Every change is a bounded
//! compare-and-swap.

use limits::{
    Micros,
    decision::{Reason, Rules},
    gcra::Gcra,
    policy::Limit,
};

use crate::{
    config::Headroom,
    fallback,
    record::{Breaker, ClassRecord, Record},
};

/// A refusal is believed no longer than this without asking again.
const RECHECK: Micros = Micros::SECOND;
/// The first probe follows a failure after this; the time doubles up to [`PROBE_MAX`].
const PROBE_MIN: Micros = Micros::from_millis(100);
const PROBE_MAX: Micros = Micros::SECOND;
/// One look at shared data serves all requests of a worker for so long. Another worker's news are
/// seen that much later: less than a round trip to the decider.
const LOOK: Micros = Micros::from_millis(1);
/// Attempts at a compare-and-swap. Each one that fails means that another worker succeeded.
const SWAPS_MAX: usize = 64;

/// A map shared by all workers of this Envoy.
pub trait SharedData {
    /// The value and its version.
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)>;
    /// Replaces the value if it still has this version; `None` means that there is no value yet.
    /// False when someone else was first.
    fn swap(&self, key: &str, value: &[u8], version: Option<u32>) -> bool;
}

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
    key: String,
    headroom: Headroom,
    /// Per class: two grants are no closer than this once the burst is used up.
    spacing: Vec<Micros>,
    /// Hash of the policy: whose classes these are.
    policy: u64,
    /// What this worker has seen last, and when it looked.
    seen: Record,
    seen_at: Option<Micros>,
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
    pub fn new(limit: &Limit, policy: &str, headroom: Headroom) -> Self {
        let rules = Rules::of(limit);
        let spacing = rules.classes.iter().map(|own| {
            let all = rules.limit.iter().chain(own).map(Gcra::emission_interval);
            all.min().unwrap_or_default()
        });
        let policy = u64::from_str_radix(policy, 16).unwrap_or(0);
        let seen = Record::new(policy, rules.classes.len());
        let key = format!("weir.limit.{}", limit.name);
        Self { key, spacing: spacing.collect(), headroom, policy, seen, seen_at: None }
    }

    /// Where a request of `class` goes at `now`.
    pub fn admit(&mut self, shared: &impl SharedData, class: usize, now: Micros) -> Admission {
        let record = self.look(shared, now);
        if now < record.pause_until {
            return refuse(record.pause_until.minus(now), Cause::Decided(Reason::Penalty));
        }
        if record.breaker.failures > 0 {
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
    pub fn claim(&mut self, shared: &impl SharedData, wants: &[u64], now: Micros) {
        let spacing = self.spacing.clone();
        let _ = self.update(shared, |record| {
            let asked = record.classes.iter_mut().zip(&spacing).zip(wants);
            for ((class, spacing), _) in asked.filter(|(_, wants)| **wants > 0) {
                let next = class.retry_at.plus(*spacing);
                let decided_by_rate = class.reason != number(Reason::Penalty);
                if decided_by_rate && class.recheck_at <= now && now < next {
                    class.recheck_at = next.min(now.plus(RECHECK));
                }
            }
        });
    }

    /// Where a request goes that could not be decided: on the gateway's share or nowhere.
    pub fn without_decider(
        &mut self,
        shared: &impl SharedData,
        class: usize,
        now: Micros,
    ) -> Admission {
        let headroom = self.headroom.clone();
        let decided = self.update(shared, |record| {
            let stop = record.pause_until.max(record.learnt_stop_until);
            if now < stop {
                return refuse(stop.minus(now), Cause::Decided(Reason::Penalty));
            }
            match fallback::decide(&headroom, record, class, now) {
                Ok(()) => Admission::Forward,
                Err(wait) => refuse(wait, Cause::Fallback),
            }
        });
        decided.unwrap_or_else(|| refuse(Micros::SECOND, Cause::Fallback))
    }

    /// Takes in an answer: what it says of each class, and the stop it tells of. True if the
    /// decider had been unreachable.
    pub fn learn(
        &mut self,
        shared: &impl SharedData,
        known: &[Known],
        penalty: Micros,
        now: Micros,
    ) -> bool {
        let learnt = self.update(shared, |record| {
            let recovered = record.breaker.failures > 0;
            record.breaker = Breaker::default();
            if !penalty.is_zero() {
                record.learnt_stop_until = record.learnt_stop_until.max(now.plus(penalty));
            }
            for (class, known) in record.classes.iter_mut().zip(known) {
                let retry_at = now.plus(known.wait);
                if known.wait.is_zero() {
                    // Whatever was claimed: one more could go.
                    class.recheck_at = class.recheck_at.min(class.retry_at);
                }
                // An answer that was overtaken by a later one must not shorten what that one said.
                let newer = retry_at > class.retry_at || now >= class.recheck_at;
                if !known.wait.is_zero() && newer {
                    let recheck_at = retry_at.min(now.plus(RECHECK));
                    let reason = known.reason.map_or(0, number);
                    *class = ClassRecord { retry_at, recheck_at, reason, ..*class };
                }
            }
            recovered
        });
        learnt.unwrap_or(false)
    }

    /// The decider did not answer a call, or a probe. True if it had been answering until now.
    pub fn failed(&mut self, shared: &impl SharedData, probe: bool, now: Micros) -> bool {
        let failed = self.update(shared, |record| {
            // Calls of all workers that one outage has met are one failure.
            if !probe && record.breaker.failures > 0 {
                return false;
            }
            let failures = record.breaker.failures.saturating_add(1);
            let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
            let pause = PROBE_MIN.times(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
            record.breaker = Breaker { failures, probe_at: now.plus(pause.min(PROBE_MAX)) };
            // What it refused before says nothing about the state it returns with.
            record.classes.iter_mut().for_each(|class| class.recheck_at = Micros::ZERO);
            failures == 1
        });
        failed.unwrap_or(false)
    }

    /// Is a probe due? True for one worker only, and only for one that has met the failure: a look
    /// at every tick of an idle worker would be for nothing.
    pub fn claim_probe(&mut self, shared: &impl SharedData, now: Micros) -> bool {
        let due = |record: &Record| record.breaker.failures > 0 && now >= record.breaker.probe_at;
        if self.seen.breaker.failures == 0 || !due(self.look(shared, now)) {
            return false;
        }
        let claimed = self.update(shared, |record| {
            let due = due(record);
            if due {
                record.breaker.probe_at = now.plus(PROBE_MAX);
            }
            due
        });
        claimed.unwrap_or(false)
    }

    /// The provider asks for a pause. Never shortens one; returns when the pause ends.
    pub fn pause(&mut self, shared: &impl SharedData, pause: Micros, now: Micros) -> Micros {
        let until = self.update(shared, |record| {
            record.pause_until = record.pause_until.max(now.plus(pause));
            record.pause_until
        });
        until.unwrap_or(now.plus(pause))
    }

    /// The record, at most [`LOOK`] old.
    fn look(&mut self, shared: &impl SharedData, now: Micros) -> &Record {
        if !self.seen_at.is_some_and(|at| at <= now && now.minus(at) < LOOK) {
            let bytes = shared.get(&self.key).map(|(bytes, _)| bytes).unwrap_or_default();
            self.seen = Record::decode(&bytes, self.policy, self.spacing.len());
            self.seen_at = Some(now);
        }
        &self.seen
    }

    /// `None` when all attempts lost against other workers.
    fn update<T>(
        &mut self,
        shared: &impl SharedData,
        change: impl Fn(&mut Record) -> T,
    ) -> Option<T> {
        for _ in 0..SWAPS_MAX {
            let (bytes, version) = match shared.get(&self.key) {
                Some((bytes, version)) => (bytes, Some(version)),
                None => (Vec::new(), None),
            };
            let before = Record::decode(&bytes, self.policy, self.spacing.len());
            let mut record = before.clone();
            let result = change(&mut record);
            if record == before || shared.swap(&self.key, &record.encode(), version) {
                self.seen = record;
                return Some(result);
            }
        }
        None
    }
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

#[cfg(test)]
pub mod tests;
