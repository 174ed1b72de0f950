//! Which gateways may be sending on their own share: the store's side of the leased fallback.
//!
//! A gateway that the decider does not answer may go on at its share of the target, but only while
//! everyone else keeps that share free for it. So its right is a lease: each ask renews it, and who
//! stops asking is *missing* from the end of the lease until it is forgotten. For that long the
//! limit's rates are lowered by the shares of the missing.
//!
//! Promise: at any moment at most `gateways` shares are given out: what is granted here and what the
//! missing may send together never exceed the target. There are no more missing than processes that
//! are not here; but one that has just joined may be here in the place of one that died and whose
//! lease still runs, so it counts for that only after a lease. Whoever asks has a share of its own.
//!
//! Time is counted by a clock of its own, which follows the store's but takes no step: an hour
//! forward would forget everyone at once, an hour back would keep leases alive that their gateways
//! have given up. At a step, or after a silence of more than a lease, nobody can say how much time
//! has passed: every lease is over, and none is nearer to being forgotten. (Only a step back that
//! comes in a silence, and is about as long, goes unseen.) `lua/decide.lua` in the
//! decider does the same; change them together.

use std::collections::BTreeMap;

use crate::units::Micros;

/// What the policy says about the leased fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a gateway counts as present after an ask.
    pub lease: Micros,
    /// How long it counts as missing after that.
    pub forget_after: Micros,
    /// The most gateway processes there can be.
    pub gateways: u32,
    /// How long a gateway waits for an answer.
    pub timeout: Micros,
}

/// One ask, or several of one gateway, with what it says of its sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    pub caller: Option<Caller>,
    /// By class, in the policy's order; missing ones count as 0.
    pub wants: Vec<u64>,
}

/// A gateway that takes part in the leased fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub gateway: String,
    /// The ask counts for nothing after this instant on the store's clock: its gateway has given
    /// it up. One further ahead than a gateway can want is from before a step of the clock.
    pub deadline: Micros,
    /// It gives its place back instead of renewing it.
    pub leaves: bool,
}

/// What became of an ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// It came after its deadline: nothing was granted, nothing renewed.
    Late,
    /// Decided; the gateway holds no lease.
    #[default]
    Guest,
    /// Decided; the gateway holds a lease.
    Member,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Members {
    /// Time as leases are measured in. Zero: this store has never heard of a lease.
    pub clock: Micros,
    /// The store's clock at the last decision.
    pub seen: Micros,
    /// Until then anyone may be missing: the store may have lost its members.
    pub unknown_until: Micros,
    /// By gateway.
    pub leases: BTreeMap<String, Held>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// It has been renewed in time since then.
    pub since: Micros,
    /// End of the lease.
    pub until: Micros,
}

/// So many of so many shares are left for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub left: u32,
    pub whole: u32,
}

impl Terms {
    /// A deadline further ahead than this was reckoned on another clock.
    pub fn deadline_max(&self) -> Micros {
        self.timeout.times(2)
    }

    /// From an ask until every lease that it may have taken is over, on any clock that is right to a
    /// hundredth. The store accepts a deadline up to twice the time-out ahead, so a step of its clock
    /// by less than that goes unseen.
    pub fn dark(&self) -> Micros {
        let longest = self.timeout.plus(self.deadline_max()).plus(self.lease);
        longest.plus(longest.hundredth())
    }

    /// From an ask that was answered until the store may have forgotten us. A lease shorter than it
    /// could be, for a step of the store's clock by less than that goes unseen.
    pub fn right(&self) -> Micros {
        self.forget_after.minus(self.forget_after.hundredth())
    }
}

impl Part {
    pub const ALL: Self = Self { left: 1, whole: 1 };
}

impl Members {
    /// Takes in the asks at `now`: what became of each, and the part of the rates that is left.
    pub fn settle(&mut self, terms: &Terms, now: Micros, asks: &[Ask]) -> (Vec<Standing>, Part) {
        self.advance(terms, now);
        let clock = self.clock;
        self.leases.retain(|_, held| clock < held.until.plus(terms.forget_after));
        let standings = asks.iter().map(|ask| self.renew(terms, now, ask)).collect();
        let whole = terms.gateways.max(1);
        let missing = self.count(|held| held.until <= clock);
        let here = self.count(|held| clock < held.until && held.since.plus(terms.lease) <= clock);
        let elsewhere = whole.saturating_sub(here.max(1));
        let missing = if clock < self.unknown_until { elsewhere } else { missing.min(elsewhere) };
        (standings, Part { left: whole - missing, whole })
    }

    fn count(&self, which: impl Fn(&Held) -> bool) -> u32 {
        let count = self.leases.values().filter(|held| which(held)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn advance(&mut self, terms: &Terms, now: Micros) {
        if self.clock.is_zero() {
            self.clock = now;
            self.unknown_until = now.plus(terms.lease).plus(terms.forget_after);
        } else {
            let passed = now.minus(self.seen);
            if now < self.seen || passed > terms.lease {
                let clock = self.clock;
                self.leases.values_mut().for_each(|held| held.until = clock.min(held.until));
            } else {
                self.clock = self.clock.plus(passed);
            }
        }
        self.seen = now;
    }

    fn renew(&mut self, terms: &Terms, now: Micros, ask: &Ask) -> Standing {
        let Some(caller) = &ask.caller else {
            return Standing::Guest;
        };
        if caller.deadline < now || caller.deadline > now.plus(terms.deadline_max()) {
            return Standing::Late;
        }
        if caller.leaves {
            self.leases.remove(&caller.gateway);
            return Standing::Guest;
        }
        let clock = self.clock;
        let held = self.leases.get(&caller.gateway).filter(|held| clock < held.until);
        if held.is_none() && self.count(|held| clock < held.until) >= terms.gateways {
            return Standing::Guest;
        }
        let since = held.map_or(clock, |held| held.since);
        let held = Held { since, until: clock.plus(terms.lease) };
        self.leases.insert(caller.gateway.clone(), held);
        Standing::Member
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Micros = Micros(1_700_000_000_000_000);
    const TERMS: Terms = Terms {
        lease: Micros::SECOND,
        forget_after: Micros::from_secs(10),
        gateways: 3,
        timeout: Micros::from_millis(50),
    };

    /// What a gateway does at so many ms after T0: renews, or leaves.
    enum Does {
        Renews(&'static str),
        Leaves(&'static str),
    }
    use Does::{Leaves, Renews};

    fn ask(does: &Does, deadline: Micros) -> Ask {
        let (gateway, leaves) = match does {
            Renews(name) => (*name, false),
            Leaves(name) => (*name, true),
        };
        let caller = Some(Caller { gateway: gateway.to_owned(), deadline, leaves });
        Ask { caller, wants: Vec::new() }
    }

    /// A store that knows since long that nobody is missing.
    fn known() -> Members {
        Members { clock: T0, seen: T0, ..Members::default() }
    }

    /// Shares left after each step.
    fn check(mut members: Members, steps: &[(i64, Does)]) -> Vec<u32> {
        let at = |ms: i64| Micros(T0.0.saturating_add_signed(ms * 1_000));
        let shares = steps.iter().map(|(ms, does)| {
            let now = at(*ms);
            members.settle(&TERMS, now, &[ask(does, now)]).1.left
        });
        shares.collect()
    }

    #[test]
    fn who_stops_asking_keeps_its_share_free_until_it_is_forgotten() {
        let steps = [
            (0, Renews("a")),
            (0, Renews("b")),
            (900, Renews("a")),
            (1_000, Renews("a")),
            (2_000, Renews("a")),
            (3_000, Renews("a")),
            (4_000, Renews("a")),
            (5_000, Renews("a")),
            (6_000, Renews("a")),
            (7_000, Renews("a")),
            (8_000, Renews("a")),
            (9_000, Renews("a")),
            (10_000, Renews("a")),
            (10_999, Renews("a")),
            (11_000, Renews("a")),
        ];
        let mut expected = vec![3, 3, 3];
        expected.extend([2; 11]);
        expected.push(3);
        assert_eq!(check(known(), &steps), expected);
    }

    #[test]
    fn who_leaves_or_returns_is_not_missing() {
        let steps = [
            (0, Renews("b")),
            (0, Leaves("b")),
            (1_500, Renews("a")),
            (1_600, Renews("b")),
            (2_600, Renews("a")),
            (2_700, Renews("b")),
        ];
        assert_eq!(check(known(), &steps), [3, 3, 3, 3, 2, 3]);
    }

    #[test]
    fn a_store_without_memory_takes_everyone_for_missing() {
        let all = |ms| [(ms, Renews("a")), (ms, Renews("b")), (ms, Renews("c"))];
        let alone = [(2_100, Renews("a")), (3_000, Renews("a")), (3_900, Renews("a"))];
        let steps: Vec<_> = [0, 800, 1_400].into_iter().flat_map(all).chain(alone).collect();
        let left = check(Members::default(), &steps);
        assert_eq!(left[..6], [1; 6], "who has just come may be in a dead one's place");
        assert_eq!(left[6..9], [3; 3]);
        assert_eq!(left[9..], [3, 1, 1], "b and c become missing");
    }

    #[test]
    fn no_more_shares_are_given_out_than_there_are() {
        let mut members = known();
        let names = ["a", "b", "c", "d"];
        let asks: Vec<Ask> = names.iter().map(|name| ask(&Renews(name), T0)).collect();
        let (standings, part) = members.settle(&TERMS, T0, &asks);
        assert_eq!(standings[..3], [Standing::Member; 3]);
        assert_eq!(standings[3], Standing::Guest);
        assert_eq!(part.left, 3);
        let later = T0.plus(Micros::SECOND);
        let (standings, part) = members.settle(&TERMS, later, &[ask(&Renews("d"), later)]);
        assert_eq!(
            (standings[0], part.left),
            (Standing::Member, 1),
            "three are missing, two count"
        );
    }

    #[test]
    fn an_ask_past_its_deadline_changes_nothing() {
        for (deadline, standing) in [
            (T0, Standing::Member),
            (Micros(T0.0 - 1), Standing::Late),
            (T0.plus(Micros::from_millis(100)), Standing::Member),
            (T0.plus(Micros::from_millis(101)), Standing::Late),
        ] {
            for does in [Renews("a"), Leaves("a")] {
                let mut members = known();
                let held = Held { since: T0, until: T0.plus(Micros(1)) };
                members.leases.insert("a".to_owned(), held);
                let (standings, _) = members.settle(&TERMS, T0, &[ask(&does, deadline)]);
                let late = standings == [Standing::Late];
                assert_eq!(late, standing == Standing::Late);
                assert_eq!(members.leases.get("a") == Some(&held), late);
            }
        }
    }

    #[test]
    fn a_step_of_the_clock_forgets_nobody_and_keeps_nobody_present() {
        let hour = 3_600_000;
        for step in [hour, -hour] {
            let steps =
                [(0, Renews("a")), (0, Renews("b")), (step, Renews("a")), (step + 9, Renews("a"))];
            assert_eq!(check(known(), &steps), [3, 3, 2, 2], "{step}");
        }
    }

    #[test]
    fn who_takes_a_dead_ones_place_does_not_hide_a_missing_one() {
        let steps = [
            (0, Renews("a")),
            (0, Renews("cut-off")),
            (500, Renews("a")),
            (900, Renews("dead")),
            (1_000, Renews("new")),
            // `a`, the dead one and the new one hold leases; the one cut off is on its share.
            (1_050, Renews("a")),
            (1_950, Renews("a")),
            (1_950, Renews("new")),
            (2_100, Renews("a")),
        ];
        assert_eq!(check(known(), &steps)[5..], [2, 1, 1, 2]);
    }
}
