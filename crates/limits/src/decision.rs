//! One decision for one limit: every rate of the limit, every rate of each class, the penalty.
//!
//! Promise: a request is granted only if all rates that bind it conform, and then all are charged;
//! otherwise none is. Classes are served in the policy's order, so the highest asks first. Nothing
//! is granted before a penalty has ended.
//!
//! `lua/decide.lua` in the decider is the same function on Redis' clock. One case table and the
//! same random sequences drive both; change them together.

use crate::{gcra::Gcra, policy::Limit, units::Micros};

/// The constants of a decision, taken from the policy once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub limit: Vec<Gcra>,
    /// One entry per class, in order of precedence; a class without rates of its own is empty.
    pub classes: Vec<Vec<Gcra>>,
    /// The longest penalty that can be legal.
    pub max_pause: Micros,
}

/// What is remembered between decisions. All instants are on the deciding clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// TATs in the order of [`Rules::tats`]: the limit's, then each class's.
    pub tats: Vec<Micros>,
    pub penalty_until: Micros,
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
        }
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

/// Decides at `now` for `wants[i]` requests of class `i` (missing ones count as 0).
pub fn decide(rules: &Rules, state: &mut State, now: Micros, wants: &[u64]) -> Vec<Share> {
    let penalty = settle(rules, state, now);
    if !penalty.is_zero() {
        let shut = Share { granted: 0, wait: penalty, reason: Some(Reason::Penalty) };
        return vec![shut; rules.classes.len()];
    }
    let mut granted = Vec::with_capacity(rules.classes.len());
    for class in 0..rules.classes.len() {
        let want = wants.get(class).copied().unwrap_or(0);
        let n = rules.binding(class).fold(want, |n, (place, gcra)| {
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
