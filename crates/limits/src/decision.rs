//! One decision for one limit: every rate of the limit, every rate of each class, the penalty.
//!
//! Promise: a request is granted only if all rates that bind it conform, and then all are charged;
//! otherwise none is. Classes are served in the policy's order, so the highest asks first. Nothing
//! is granted before a penalty has ended. While gateways are missing that may be sending on their
//! own share (`members`), every rate is lower by their shares.
//!
//! `lua/decide.lua` in the decider is the same function on Redis' clock. One case table and the
//! same random sequences drive both; change them together.

use std::borrow::Cow;

use crate::{
    gcra::Gcra,
    members::{Ask, Members, Part, Standing, Terms},
    policy::Limit,
    units::Micros,
};

/// The constants of a decision, taken from the policy once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub limit: Vec<Gcra>,
    /// One entry per class, in order of precedence; a class without rates of its own is empty.
    pub classes: Vec<Vec<Gcra>>,
    /// The longest penalty that can be legal.
    pub max_pause: Micros,
    /// Of the leased fallback, if the limit has one.
    pub terms: Option<Terms>,
}

/// What is remembered between decisions. All instants are on the deciding clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// TATs in the order of [`Rules::tats`]: the limit's, then each class's.
    pub tats: Vec<Micros>,
    pub penalty_until: Micros,
    /// When this memory began: another value tells gateways that it was lost. Zero: not yet.
    pub born: Micros,
    pub members: Members,
}

/// What holds a class back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The whole limit is at its target.
    Rate,
    /// The class is at its own cap.
    ClassRate,
    /// The provider asked everyone to stop.
    Penalty,
}

/// The answer for one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub granted: u64,
    /// From now until the next one could go; zero when one still could.
    pub wait: Micros,
    /// What the wait is for; `None` when there is none.
    pub reason: Option<Reason>,
}

impl Rules {
    pub fn of(limit: &Limit) -> Self {
        Self {
            limit: limit.rates.iter().map(|rate| rate.gcra()).collect(),
            classes: limit
                .classes
                .iter()
                .map(|class| class.rates.iter().map(|rate| rate.gcra()).collect())
                .collect(),
            max_pause: limit.throttle.max_pause,
            terms: limit.terms,
        }
    }

    /// What is left of every rate while gateways are missing.
    fn slowed(&self, part: Part) -> Cow<'_, Self> {
        if part.left == part.whole {
            return Cow::Borrowed(self);
        }
        let slowed = |gcra: &Gcra| gcra.slowed(part.left, part.whole);
        let classes = self.classes.iter().map(|own| own.iter().map(slowed).collect()).collect();
        let limit = self.limit.iter().map(slowed).collect();
        Cow::Owned(Self { limit, classes, max_pause: self.max_pause, terms: self.terms })
    }

    /// Every rate, in the order in which [`State::tats`] keeps them.
    pub fn tats(&self) -> impl Iterator<Item = &Gcra> {
        self.limit.iter().chain(self.classes.iter().flatten())
    }

    /// The rates that bind a class, with their places in [`State::tats`]: the limit's, then its own.
    fn binding(&self, class: usize) -> impl Iterator<Item = (usize, &Gcra)> {
        let before = self.classes.iter().take(class).map(Vec::len).sum::<usize>();
        let own = self.classes.get(class).into_iter().flatten().enumerate();
        let place = self.limit.len() + before;
        self.limit.iter().enumerate().chain(own.map(move |(i, gcra)| (place + i, gcra)))
    }
}

/// The outcome for all asks together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// One per class.
    pub shares: Vec<Share>,
    /// One per ask.
    pub standings: Vec<Standing>,
}

/// Decides at `now` for all asks that came in time, together.
pub fn decide(rules: &Rules, state: &mut State, now: Micros, asks: &[Ask]) -> Outcome {
    if state.born.is_zero() {
        state.born = now;
    }
    let (standings, part) = match &rules.terms {
        Some(terms) => state.members.settle(terms, now, asks),
        None => (vec![Standing::Guest; asks.len()], Part::ALL),
    };
    let mut wants = vec![0_u64; rules.classes.len()];
    let in_time = asks.iter().zip(&standings).filter(|(_, standing)| **standing != Standing::Late);
    for (ask, _) in in_time {
        for (total, want) in wants.iter_mut().zip(&ask.wants) {
            *total = total.saturating_add(*want);
        }
    }
    Outcome { shares: decide_rates(&rules.slowed(part), state, now, &wants), standings }
}

fn decide_rates(rules: &Rules, state: &mut State, now: Micros, wants: &[u64]) -> Vec<Share> {
    let penalty = settle(rules, state, now);
    if !penalty.is_zero() {
        let shut = Share { granted: 0, wait: penalty, reason: Some(Reason::Penalty) };
        return vec![shut; rules.classes.len()];
    }
    let mut granted = Vec::with_capacity(rules.classes.len());
    for (class, want) in wants.iter().enumerate() {
        let n = rules.binding(class).fold(*want, |n, (place, gcra)| {
            n.min(state.tats.get(place).map_or(0, |tat| gcra.admissible(*tat, now)))
        });
        for (place, gcra) in rules.binding(class).filter(|_| n > 0) {
            if let Some(tat) = state.tats.get_mut(place) {
                *tat = gcra.charge(*tat, now, n);
            }
        }
        granted.push(n);
    }
    shares(rules, state, now, &granted)
}

/// Lengthens the penalty so that it ends no earlier than `now + pause`; never shortens it.
/// Returns what is left of it. A pause of zero changes nothing.
pub fn penalise(rules: &Rules, state: &mut State, now: Micros, pause: Micros) -> Micros {
    settle_penalty(rules, state, now);
    if !pause.is_zero() {
        state.penalty_until = state.penalty_until.max(now.plus(pause.min(rules.max_pause)));
    }
    state.penalty_until.minus(now)
}

/// Pulls every remembered instant back to what can be legal at `now` and keeps it so: pulled back
/// afresh at each look, it would move ahead with the clock and never come. Returns what is left of
/// the penalty.
fn settle(rules: &Rules, state: &mut State, now: Micros) -> Micros {
    state.tats.resize(rules.tats().count(), Micros::ZERO);
    for (gcra, tat) in rules.tats().zip(state.tats.iter_mut()) {
        *tat = gcra.legal(*tat, now);
    }
    settle_penalty(rules, state, now)
}

fn settle_penalty(rules: &Rules, state: &mut State, now: Micros) -> Micros {
    state.penalty_until = state.penalty_until.min(now.plus(rules.max_pause));
    state.penalty_until.minus(now)
}

/// Waits are looked up after everything was charged, so that they are true for whoever asks next.
fn shares(rules: &Rules, state: &State, now: Micros, granted: &[u64]) -> Vec<Share> {
    let share = |(class, granted): (usize, &u64)| {
        let mut longest = (Micros::ZERO, None);
        for (place, gcra) in rules.binding(class) {
            let wait = state.tats.get(place).map_or(Micros::ZERO, |tat| gcra.wait(*tat, now));
            if wait > longest.0 {
                let own = place >= rules.limit.len();
                longest = (wait, Some(if own { Reason::ClassRate } else { Reason::Rate }));
            }
        }
        Share { granted: *granted, wait: longest.0, reason: longest.1 }
    };
    granted.iter().enumerate().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gcra::Rate, members::Caller};

    const T0: Micros = Micros(1_700_000_000_000_000);
    const OTP: usize = 0;
    const MARKETING: usize = 1;

    fn gcra(target: u32, burst: u32) -> Gcra {
        Rate { target, per: Micros::SECOND, burst }.gcra()
    }

    /// The incident's limit: 90/s, marketing 70/s, both with a burst of 5.
    fn rules() -> Rules {
        let classes = vec![vec![], vec![gcra(70, 5)]];
        Rules {
            limit: vec![gcra(90, 5)],
            classes,
            max_pause: Micros::from_secs(3_600),
            terms: None,
        }
    }

    fn decide(rules: &Rules, state: &mut State, now: Micros, wants: &[u64]) -> Vec<Share> {
        let ask = Ask { caller: None, wants: wants.to_vec() };
        super::decide(rules, state, now, &[ask]).shares
    }

    fn granted(shares: &[Share]) -> Vec<u64> {
        shares.iter().map(|share| share.granted).collect()
    }

    /// Asks of (µs after T0, wants) one after the other; what each was granted.
    fn check(rules: &Rules, asks: &[(u64, [u64; 2])]) -> Vec<Vec<u64>> {
        let mut state = State::default();
        let ask = |(at, wants): &(u64, [u64; 2])| {
            granted(&decide(rules, &mut state, T0.plus(Micros(*at)), wants))
        };
        asks.iter().map(ask).collect()
    }

    #[test]
    fn the_highest_class_is_served_first() {
        assert_eq!(check(&rules(), &[(0, [3, 9])]), [[3, 2]]);
        assert_eq!(check(&rules(), &[(0, [9, 9])]), [[5, 0]]);
    }

    #[test]
    fn marketing_is_held_to_its_own_cap_and_otp_is_not() {
        let second = 1_000_000;
        let mut asks: Vec<(u64, [u64; 2])> = (0..=1_000).map(|ms| (ms * 1_000, [0, 1])).collect();
        asks.push((second, [1, 0]));
        let run = check(&rules(), &asks);
        let marketing: u64 = run.iter().map(|granted| granted[MARKETING]).sum();
        assert_eq!(marketing, 5 + second / 14_286);
        assert_eq!(run.last().map(|granted| granted[OTP]), Some(1), "room is left for an OTP");
    }

    #[test]
    fn a_refused_request_is_charged_nowhere() {
        let rules = rules();
        let mut state = State::default();
        decide(&rules, &mut state, T0, &[5, 0]);
        let before = state.clone();
        decide(&rules, &mut state, T0, &[0, 5]);
        assert_eq!(state, before, "the class's own TAT as well");
    }

    #[test]
    fn what_is_granted_is_charged_everywhere() {
        let mut state = State::default();
        decide(&rules(), &mut state, T0, &[0, 2]);
        assert_eq!(state.tats, [T0.plus(Micros(2 * 11_112)), T0.plus(Micros(2 * 14_286))]);
    }

    #[test]
    fn waits_name_what_binds() {
        let mut state = State::default();
        let shares = decide(&rules(), &mut state, T0, &[0, 5]);
        let wait = |wait, reason| (Micros(wait), Some(reason));
        assert_eq!((shares[OTP].wait, shares[OTP].reason), wait(11_112, Reason::Rate));
        assert_eq!(
            (shares[MARKETING].wait, shares[MARKETING].reason),
            wait(14_286, Reason::ClassRate)
        );
        let later = T0.plus(Micros(14_286));
        let shares = decide(&rules(), &mut state, later, &[0, 0]);
        assert_eq!(shares, vec![Share { granted: 0, wait: Micros::ZERO, reason: None }; 2]);
    }

    #[test]
    fn a_penalty_stops_everyone_and_is_never_shortened() {
        let mut state = State::default();
        let rules = rules();
        assert_eq!(penalise(&rules, &mut state, T0, Micros::from_secs(10)), Micros::from_secs(10));
        assert_eq!(penalise(&rules, &mut state, T0, Micros::SECOND), Micros::from_secs(10));
        let shares = decide(&rules, &mut state, T0.plus(Micros(9_999_999)), &[1, 1]);
        let shut = Share { granted: 0, wait: Micros(1), reason: Some(Reason::Penalty) };
        assert_eq!(shares, [shut, shut]);
        assert_eq!(
            granted(&decide(&rules, &mut state, T0.plus(Micros(10_000_000)), &[1, 1])),
            [1, 1]
        );
    }

    #[test]
    fn a_clock_that_steps_back_stalls_no_longer_than_one_interval() {
        let hour = 3_600_000_000;
        let run =
            check(&rules(), &[(hour, [5, 0]), (0, [1, 0]), (11_111, [1, 0]), (11_112, [1, 0])]);
        assert_eq!(run, [[5, 0], [0, 0], [0, 0], [1, 0]]);
    }

    #[test]
    fn a_penalty_from_a_clock_ahead_is_no_longer_than_the_longest_legal() {
        let mut state = State { penalty_until: Micros(u64::MAX), ..State::default() };
        let shares = decide(&rules(), &mut state, T0, &[1, 0]);
        assert_eq!(shares[OTP].wait, Micros::from_secs(3_600));
        let over = T0.plus(Micros::from_secs(3_600));
        assert_eq!(granted(&decide(&rules(), &mut state, over, &[1, 0])), [1, 0]);
    }

    #[test]
    fn the_shares_of_missing_gateways_are_kept_free() {
        let terms = Terms {
            lease: Micros::SECOND,
            forget_after: Micros::from_secs(10),
            gateways: 2,
            timeout: Micros(50_000),
        };
        let rules = Rules { terms: Some(terms), ..rules() };
        let mut state = State::default();
        let mut granted_in_a_second = |from: u64, gateways: &[&str]| {
            let mut granted = [0, 0];
            for ms in from..from + 1_000 {
                let now = T0.plus(Micros::from_millis(ms));
                let ask = |name: &&str| Ask {
                    caller: Some(Caller {
                        gateway: (*name).to_owned(),
                        deadline: now,
                        leaves: false,
                    }),
                    wants: vec![u64::from(ms % 10 == 0), 1],
                };
                let asks: Vec<Ask> = gateways.iter().map(ask).collect();
                let outcome = super::decide(&rules, &mut state, now, &asks);
                granted[OTP] += outcome.shares[OTP].granted;
                granted[MARKETING] += outcome.shares[MARKETING].granted;
            }
            granted
        };
        let alone = granted_in_a_second(0, &["a"]);
        assert_eq!((alone[OTP] + alone[MARKETING], alone[MARKETING] <= 4 + 35), (3 + 44, true));
        // A lease later both are known to be here.
        granted_in_a_second(1_000, &["a", "b"]);
        let both = granted_in_a_second(2_000, &["a", "b"]);
        assert!((88..=90 + 5).contains(&(both[OTP] + both[MARKETING])), "{both:?}");
    }

    #[test]
    fn with_several_rates_all_must_pass() {
        let per_minute = Rate { target: 60, per: Micros::from_secs(60), burst: 7 }.gcra();
        let rules = Rules { limit: vec![gcra(90, 5), per_minute], ..rules() };
        assert_eq!(check(&rules, &[(0, [9, 0]), (900_000, [9, 0])]), [[5, 0], [2, 0]]);
    }
}
