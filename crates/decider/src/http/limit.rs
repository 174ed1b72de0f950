//! One limit's state for people: what could go now, what waits, and for what.

use limits::{
    Micros,
    decision::{Reason, Rules, State, decide},
    gcra::{Gcra, Rate},
    members::Ask,
    policy::Limit,
};
use serde::Serialize;

use crate::store::{Account, Snapshot};

#[derive(Serialize)]
pub(super) struct View<'a> {
    limit: &'a str,
    /// The store's clock.
    now_us: u64,
    /// What is left of the provider's stop.
    penalty_us: u64,
    rates: Vec<RateView>,
    /// In order of precedence.
    classes: Vec<ClassView<'a>>,
}

#[derive(Serialize)]
struct RateView {
    target: u32,
    per: String,
    burst: u32,
    /// Requests that this rate alone would let go now.
    available: u64,
    /// Until it would let the next one go.
    wait_us: u64,
}

#[derive(Serialize)]
struct ClassView<'a> {
    name: &'a str,
    rates: Vec<RateView>,
    /// Requests of this class that could go now, if no other class took any.
    available: u64,
    wait_us: u64,
    reason: Option<Reason>,
}

pub(super) fn view<'a>(account: &'a Account, limit: &'a Limit, snapshot: &Snapshot) -> View<'a> {
    let Snapshot { now, state } = snapshot;
    // Nothing is wanted: this only pulls a copy back to what is legal.
    let mut legal = state.clone();
    let rules = Rules { terms: None, ..account.rules.clone() };
    let shares = decide(&rules, &mut legal, *now, &[]).shares;
    let mut kept = account.rules.tats().zip(&legal.tats);
    let mut rates = |rates: &[Rate]| -> Vec<RateView> {
        let of = |(rate, (gcra, tat)): (&Rate, (&Gcra, &Micros))| rate_view(rate, gcra, *tat, *now);
        rates.iter().zip(kept.by_ref()).map(of).collect()
    };
    let limit_rates = rates(&limit.rates);
    let class =
        |(index, (name, share)): (usize, (&'a String, &limits::decision::Share))| ClassView {
            name,
            rates: rates(&limit.classes[index].rates),
            available: available(&rules, &legal, *now, index),
            wait_us: share.wait.0,
            reason: share.reason,
        };
    let classes = account.classes.iter().zip(&shares).enumerate();
    View {
        limit: &account.name,
        now_us: now.0,
        penalty_us: legal.penalty_until.minus(*now).0,
        rates: limit_rates,
        classes: classes.map(class).collect(),
    }
}

fn rate_view(rate: &Rate, gcra: &Gcra, tat: Micros, now: Micros) -> RateView {
    RateView {
        target: rate.target,
        per: rate.per.to_string(),
        burst: rate.burst,
        available: gcra.admissible(tat, now),
        wait_us: gcra.wait(tat, now).0,
    }
}

fn available(rules: &Rules, state: &State, now: Micros, class: usize) -> u64 {
    let mut wants = vec![0; rules.classes.len()];
    wants[class] = u64::MAX;
    let ask = Ask { caller: None, wants };
    decide(rules, &mut state.clone(), now, &[ask]).shares[class].granted
}
