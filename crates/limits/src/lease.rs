//! May a gateway send without asking, and how much: the gateway's side of the leased fallback.
//!
//! ```text
//!              an ask or probe is answered
//!          ┌────────────────────────────────────┐
//!          ▼                                    │
//!        asking ── an ask is not answered ──► dark ── no lease of ours ──► on its share
//!                                               ▲     runs any more            │
//!                                               └──── nobody counts us ◄───────┘
//! ```
//! `members` is the store's side. Promise: a gateway sends at its share only while the store keeps
//! that share free: after every lease that it may have taken is surely over, and before the store
//! can have forgotten it. At all other times without an answer it is *dark*: only the headroom is
//! its own. It never renews while it sends on its own.
//!
//! All instants are on the gateway's monotonic clock, but for `store_at` and deadlines, which are on
//! the store's. The two may run at different speeds, by up to one in a hundred.

use crate::{members::Terms, units::Micros};

/// First wait before a probe; doubled by each failure.
const PROBE_MIN: Micros = Micros::from_millis(100);
const PROBE_MAX: Micros = Micros::SECOND;
/// An older reading of the store's clock is not trusted: clocks drift.
const READING_MAX: Micros = Micros::from_secs(60);
/// A gateway without matching traffic for so many leases leaves.
const IDLE_LEASES: u64 = 5;

/// What a gateway knows of its place, for one limit; shared by the workers of its process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Asks or probes in a row that were not answered; 0: requests ask.
    pub failures: u64,
    /// When the next probe is due, while there are failures.
    pub probe_at: Micros,
    /// When the store's clock was read, and what it showed: it showed no less at that instant.
    pub heard_at: Micros,
    pub store_at: Micros,
    /// Every lease that we may have taken is over by then.
    pub taken_until: Micros,
    /// The store counts us, as present or as missing, at least until then.
    pub counted_until: Micros,
    /// Our leave is on its way until then: what we ask renews nothing.
    pub leaving_until: Micros,
    /// The last ask that renews.
    pub renewed_at: Micros,
    /// The last request that the policy speaks of; not exact.
    pub used_at: Micros,
}

/// What a gateway may send that does not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Its share of what the contract leaves over the target: always safe.
    Headroom,
    /// Its share of the target, as well: the store keeps it free.
    Share,
}

/// What a quiet gateway owes the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// An ask for nothing, so that the lease goes on.
    Renew,
    /// Its leave, so that its share goes to the others.
    Leave,
}

/// A probe is harmless: it renews nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Ask,
    Probe,
}

impl Lease {
    /// May requests ask? Otherwise they go on the own [`right`](Self::right), or nowhere.
    pub const fn asks(&self) -> bool {
        self.failures == 0
    }

    pub fn right(&self, now: Micros) -> Right {
        if self.taken_until <= now && now < self.counted_until {
            Right::Share
        } else {
            Right::Headroom
        }
    }

    /// The deadline of an ask sent at `now`, on the store's clock; `None` when it must not renew:
    /// the clock is not known, or our leave is on its way. To be called for each ask that is sent.
    ///
    /// It lies before the instant at which we give the ask up: the store's clock has shown at least
    /// `store_at` and at least as much time has passed there.
    pub fn renew(&mut self, terms: &Terms, now: Micros) -> Option<Micros> {
        let age = now.minus(self.heard_at);
        if self.heard_at.is_zero() || age > READING_MAX || now < self.leaving_until {
            return None;
        }
        self.taken_until = self.taken_until.max(now.plus(terms.dark()));
        self.renewed_at = now;
        Some(self.store_at.plus(age.minus(age.hundredth())).plus(terms.timeout))
    }

    /// An answer came at `now`: it shows the store's clock. True if the decider had been unreachable.
    pub fn answered(&mut self, store_now: Micros, now: Micros) -> bool {
        let recovered = self.failures > 0;
        (self.heard_at, self.store_at) = (now, store_now);
        (self.failures, self.probe_at) = (0, Micros::ZERO);
        recovered
    }

    /// The answer to an ask that was to renew, sent at `sent_at`, says whether we are a member.
    pub fn renewed(&mut self, terms: &Terms, sent_at: Micros, member: bool) {
        let until = sent_at.plus(terms.right());
        self.counted_until = if member { self.counted_until.max(until) } else { Micros::ZERO };
    }

    /// A call was not answered in time. True if the decider had been answering until now.
    pub fn failed(&mut self, call: Call, now: Micros) -> bool {
        // Calls of all workers that one outage has met are one failure.
        if call == Call::Ask && self.failures > 0 {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = u32::try_from(self.failures - 1).unwrap_or(u32::MAX).min(16);
        let pause = PROBE_MIN.times(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        self.probe_at = now.plus(pause.min(PROBE_MAX));
        self.failures == 1
    }

    /// Is a probe due? Claims it.
    pub fn claim_probe(&mut self, now: Micros) -> bool {
        let due = self.failures > 0 && now >= self.probe_at;
        if due {
            self.probe_at = now.plus(PROBE_MAX);
        }
        due
    }

    /// What is owed at `now`: to be done with [`renew`](Self::renew) or [`leave`](Self::leave).
    pub fn duty(&self, terms: &Terms, now: Micros) -> Option<Duty> {
        if !self.asks() || self.counted_until <= now {
            return None;
        }
        if now.minus(self.used_at) >= terms.lease.times(IDLE_LEASES) {
            return Some(Duty::Leave);
        }
        let due = now.minus(self.renewed_at) >= Micros(terms.lease.0 / 3);
        due.then_some(Duty::Renew)
    }

    /// We leave at `now`: from here on nothing is counted for us. `None` if the clock is not known.
    pub fn leave(&mut self, terms: &Terms, now: Micros) -> Option<Micros> {
        let deadline = self.renew(terms, now);
        self.counted_until = Micros::ZERO;
        self.leaving_until = now.plus(terms.deadline_max().plus(terms.timeout));
        deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        lease: Micros::SECOND,
        forget_after: Micros::from_secs(10),
        gateways: 2,
        timeout: Micros::from_millis(50),
    };
    const STORE: Micros = Micros(1_700_000_000_000_000);

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    /// A member whose last ask was sent at 10 s and answered 2 ms later.
    fn member() -> Lease {
        let mut lease = Lease { used_at: ms(10_000), ..Lease::default() };
        lease.answered(STORE, ms(9_000));
        assert!(lease.renew(&TERMS, ms(10_000)).is_some());
        lease.answered(STORE.plus(ms(1_001)), ms(10_002));
        lease.renewed(&TERMS, ms(10_000), true);
        lease
    }

    fn rights(lease: &Lease, at: &[u64]) -> Vec<Right> {
        at.iter().map(|at| lease.right(ms(*at))).collect()
    }

    #[test]
    fn the_share_begins_after_the_last_lease_and_ends_before_we_are_forgotten() {
        let mut lease = member();
        assert!(lease.asks());
        lease.renew(&TERMS, ms(10_300));
        assert!(lease.failed(Call::Ask, ms(10_350)));
        // 10.3 s, 150 ms in which a decider may still carry it out, 1 s of lease; and a hundredth.
        assert_eq!(lease.taken_until, Micros(10_300_000 + 1_161_500));
        // Counted from the ask that was answered: 10 s less a hundredth.
        assert_eq!(lease.counted_until, Micros(19_900_000));
        let expected = [Right::Headroom, Right::Share, Right::Share, Right::Headroom];
        assert_eq!(rights(&lease, &[11_461, 11_462, 19_899, 19_900]), expected);
    }

    #[test]
    fn who_was_never_a_member_has_headroom_only() {
        let mut lease = Lease::default();
        assert_eq!(lease.renew(&TERMS, ms(5)), None, "the clock is not known");
        lease.failed(Call::Ask, ms(10));
        assert_eq!(rights(&lease, &[11, 2_000, 20_000]), [Right::Headroom; 3]);
        lease.renewed(&TERMS, ms(10), false);
        assert_eq!(rights(&lease, &[2_000]), [Right::Headroom], "there was no place");
    }

    #[test]
    fn a_probe_renews_nothing_and_an_ask_that_is_lost_makes_dark_again() {
        let mut lease = member();
        lease.failed(Call::Ask, ms(10_350));
        assert_eq!(lease.right(ms(12_000)), Right::Share);
        let counted_until = lease.counted_until;
        assert!(lease.answered(STORE.plus(ms(3_000)), ms(12_000)), "by a probe");
        assert!(lease.asks());
        assert_eq!(lease.counted_until, counted_until);
        lease.renew(&TERMS, ms(12_001));
        lease.failed(Call::Ask, ms(12_051));
        assert_eq!(
            rights(&lease, &[12_051, 13_100, 13_200]),
            [Right::Headroom, Right::Headroom, Right::Share]
        );
    }

    #[test]
    fn the_deadline_is_never_later_than_the_instant_we_give_up() {
        let lease = member();
        // The store may be up to 2 ms further than what it showed at 10.002 s.
        let deadline = |at| { lease }.renew(&TERMS, ms(at)).unwrap();
        assert_eq!(deadline(10_002), STORE.plus(ms(1_001 + 50)));
        assert_eq!(deadline(11_002), STORE.plus(ms(2_001 + 50 - 10)), "less one in a hundred");
        assert_eq!({ lease }.renew(&TERMS, ms(70_003)), None, "too long ago");
    }

    #[test]
    fn a_quiet_gateway_renews_and_an_idle_one_leaves() {
        let mut lease = member();
        assert_eq!(lease.duty(&TERMS, ms(10_333)), None);
        assert_eq!(lease.duty(&TERMS, ms(10_334)), Some(Duty::Renew));
        assert_eq!(lease.duty(&TERMS, ms(15_000)), Some(Duty::Leave));
        assert!(lease.leave(&TERMS, ms(15_000)).is_some());
        assert_eq!(lease.duty(&TERMS, ms(15_001)), None);
        assert_eq!(lease.renew(&TERMS, ms(15_149)), None, "it could overtake the leave");
        assert!(lease.renew(&TERMS, ms(15_150)).is_some());
        lease.failed(Call::Ask, ms(15_200));
        assert_eq!(rights(&lease, &[15_200, 17_000]), [Right::Headroom; 2], "nobody counts us");
    }

    #[test]
    fn one_outage_is_one_failure_and_probes_are_claimed_once() {
        let mut lease = member();
        assert!(lease.failed(Call::Ask, ms(20_000)));
        assert!(!lease.failed(Call::Ask, ms(20_001)), "a call of another worker");
        assert!(!lease.claim_probe(ms(20_099)));
        assert!(lease.claim_probe(ms(20_100)));
        assert!(!lease.claim_probe(ms(20_100)));
        assert!(!lease.failed(Call::Probe, ms(20_150)));
        assert_eq!(lease.probe_at, ms(20_350), "200 ms after the second failure");
        assert_eq!(lease.duty(&TERMS, ms(20_150)), None, "nothing is renewed meanwhile");
    }
}
