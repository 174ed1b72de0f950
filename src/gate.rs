//! What the whole gateway knows of one limit, and what that means for a request.
//!
//! Promise: a request is refused from memory only when the decider would refuse it too: a TAT moves
//! forward only, so a refusal stays true until its time has come. It is asked again after a second
//! at the latest, for a store may have lost its state. A pause the provider asked of this gateway
//! ends by time alone.
//!
//! The state is shared by all workers of the process (`record`). Every change is a bounded
//! compare-and-swap.

use limits::{Micros, decision::Reason};

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
    pub fn new(limit: &str, headroom: Headroom) -> Self {
        Self { key: format!("weir.limit.{limit}"), headroom }
    }

    /// Where a request of `class` goes at `now`.
    pub fn admit(&self, shared: &impl SharedData, class: usize, now: Micros) -> Admission {
        let record = self.read(shared);
        if now < record.pause_until {
            return refuse(record.pause_until.minus(now), Cause::Decided(Reason::Penalty));
        }
        if record.breaker.failures > 0 {
            return self.without_decider(shared, class, now);
        }
        match record.classes.get(class) {
            Some(known) if now < known.recheck_at => {
                refuse(known.retry_at.minus(now), Cause::Decided(reason(known.reason)))
            }
            _ => Admission::Ask,
        }
    }

    /// Where a request goes that could not be decided: on the gateway's share or nowhere.
    pub fn without_decider(
        &self,
        shared: &impl SharedData,
        class: usize,
        now: Micros,
    ) -> Admission {
        let decided = self.update(shared, |record| {
            let stop = record.pause_until.max(record.learnt_stop_until);
            if now < stop {
                return refuse(stop.minus(now), Cause::Decided(Reason::Penalty));
            }
            match fallback::decide(&self.headroom, record, class, now) {
                Ok(()) => Admission::Forward,
                Err(wait) => refuse(wait, Cause::Fallback),
            }
        });
        decided.unwrap_or_else(|| refuse(Micros::SECOND, Cause::Fallback))
    }

    /// Takes in an answer: what it says of each class, and the stop it tells of. True if the
    /// decider had been unreachable.
    pub fn learn(
        &self,
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

    /// The decider did not answer. True if it had been answering until now.
    pub fn failed(&self, shared: &impl SharedData, now: Micros) -> bool {
        let failed = self.update(shared, |record| {
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

    /// Is a probe due? True for one worker only.
    pub fn claim_probe(&self, shared: &impl SharedData, now: Micros) -> bool {
        let due = |record: &Record| record.breaker.failures > 0 && now >= record.breaker.probe_at;
        if !due(&self.read(shared)) {
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
    pub fn pause(&self, shared: &impl SharedData, pause: Micros, now: Micros) -> Micros {
        let until = self.update(shared, |record| {
            record.pause_until = record.pause_until.max(now.plus(pause));
            record.pause_until
        });
        until.unwrap_or(now.plus(pause))
    }

    fn read(&self, shared: &impl SharedData) -> Record {
        let bytes = shared.get(&self.key).map(|(bytes, _)| bytes).unwrap_or_default();
        Record::decode(&bytes, self.headroom.caps.len())
    }

    /// `None` when all attempts lost against other workers.
    fn update<T>(&self, shared: &impl SharedData, change: impl Fn(&mut Record) -> T) -> Option<T> {
        for _ in 0..SWAPS_MAX {
            let (bytes, version) = match shared.get(&self.key) {
                Some((bytes, version)) => (bytes, Some(version)),
                None => (Vec::new(), None),
            };
            let before = Record::decode(&bytes, self.headroom.caps.len());
            let mut record = before.clone();
            let result = change(&mut record);
            if record == before || shared.swap(&self.key, &record.encode(), version) {
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
pub mod tests {
    use std::{cell::RefCell, collections::HashMap};

    use limits::gcra::Gcra;

    use super::*;

    /// Shared data as Envoy keeps it.
    #[derive(Default)]
    pub struct Map(RefCell<HashMap<String, (Vec<u8>, u32)>>);

    impl SharedData for Map {
        fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
            self.0.borrow().get(key).cloned()
        }

        fn swap(&self, key: &str, value: &[u8], version: Option<u32>) -> bool {
            let mut map = self.0.borrow_mut();
            if map.get(key).map(|(_, version)| *version) != version {
                return false;
            }
            map.insert(key.to_owned(), (value.to_vec(), version.unwrap_or(0) + 1));
            true
        }
    }

    const NOW: Micros = Micros(5_000_000_000);
    const OTP: usize = 0;
    const MARKETING: usize = 1;

    fn gate() -> Gate {
        let share = Some(Gcra::spaced(Micros::SECOND));
        Gate::new("sms", Headroom { share, caps: vec![None, None] })
    }

    fn after(ms: u64) -> Micros {
        NOW.plus(Micros::from_millis(ms))
    }

    fn marketing_waits(ms: u64) -> [Known; 2] {
        let wait = Micros::from_millis(ms);
        [Known::default(), Known { wait, reason: Some(Reason::ClassRate) }]
    }

    fn refused(ms: u64, reason: Reason) -> Admission {
        refuse(Micros::from_millis(ms), Cause::Decided(reason))
    }

    #[test]
    fn a_refusal_is_remembered_until_its_time_and_for_its_class_only() {
        let (gate, map) = (gate(), Map::default());
        gate.learn(&map, &marketing_waits(14), Micros::ZERO, NOW);
        assert_eq!(gate.admit(&map, MARKETING, after(0)), refused(14, Reason::ClassRate));
        assert_eq!(gate.admit(&map, MARKETING, after(13)), refused(1, Reason::ClassRate));
        assert_eq!(gate.admit(&map, MARKETING, after(14)), Admission::Ask);
        assert_eq!(gate.admit(&map, OTP, after(0)), Admission::Ask);
    }

    #[test]
    fn a_long_refusal_is_asked_again_after_a_second_but_told_in_full() {
        let (gate, map) = (gate(), Map::default());
        gate.learn(&map, &marketing_waits(60_000), Micros::ZERO, NOW);
        assert_eq!(gate.admit(&map, MARKETING, after(999)), refused(59_001, Reason::ClassRate));
        assert_eq!(gate.admit(&map, MARKETING, after(1_000)), Admission::Ask);
    }

    #[test]
    fn a_refusal_that_was_asked_again_is_remembered_again() {
        let (gate, map) = (gate(), Map::default());
        gate.learn(&map, &marketing_waits(60_000), Micros::ZERO, NOW);
        gate.learn(&map, &marketing_waits(30_000), Micros::ZERO, after(1_000));
        assert_eq!(gate.admit(&map, MARKETING, after(1_001)), refused(29_999, Reason::ClassRate));
    }

    #[test]
    fn an_answer_that_was_overtaken_shortens_nothing() {
        let (gate, map) = (gate(), Map::default());
        gate.learn(&map, &marketing_waits(28), Micros::ZERO, NOW);
        gate.learn(&map, &marketing_waits(14), Micros::ZERO, NOW);
        gate.learn(&map, &marketing_waits(0), Micros::ZERO, NOW);
        assert_eq!(gate.admit(&map, MARKETING, after(20)), refused(8, Reason::ClassRate));
    }

    #[test]
    fn a_pause_stops_every_class_and_is_never_shortened() {
        let (gate, map) = (gate(), Map::default());
        gate.pause(&map, Micros::from_secs(10), NOW);
        assert_eq!(gate.pause(&map, Micros::SECOND, NOW), after(10_000));
        for class in [OTP, MARKETING] {
            assert_eq!(gate.admit(&map, class, after(9_999)), refused(1, Reason::Penalty));
            assert_eq!(gate.admit(&map, class, after(10_000)), Admission::Ask);
        }
    }

    #[test]
    fn after_a_failure_only_the_own_share_goes_and_one_probe() {
        let (gate, map) = (gate(), Map::default());
        assert!(gate.failed(&map, NOW), "the first one opens");
        assert!(!gate.failed(&map, NOW), "the second one changes nothing");
        assert_eq!(gate.admit(&map, OTP, NOW), Admission::Forward);
        let share_used = refuse(Micros::SECOND, Cause::Fallback);
        assert_eq!(gate.admit(&map, OTP, NOW), share_used);
        assert!(!gate.claim_probe(&map, after(199)));
        assert!(gate.claim_probe(&map, after(200)));
        assert!(!gate.claim_probe(&map, after(200)), "another worker has it");
        assert!(gate.learn(&map, &[], Micros::ZERO, after(201)), "recovered");
        assert_eq!(gate.admit(&map, OTP, after(201)), Admission::Ask);
    }

    #[test]
    fn probes_come_at_least_every_second() {
        let (gate, map) = (gate(), Map::default());
        for _ in 0..100 {
            gate.failed(&map, NOW);
        }
        assert!(gate.claim_probe(&map, after(1_000)));
    }

    #[test]
    fn a_stop_that_the_decider_told_of_holds_when_it_is_gone() {
        let (gate, map) = (gate(), Map::default());
        gate.learn(&map, &[], Micros::from_secs(3), NOW);
        gate.failed(&map, NOW);
        assert_eq!(gate.admit(&map, OTP, after(2_999)), refused(1, Reason::Penalty));
        assert_eq!(gate.admit(&map, OTP, after(3_000)), Admission::Forward);
    }
}
