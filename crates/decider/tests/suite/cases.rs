//! One case table for the Rust decision, the Lua script and the memory store.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use decider::store::{Account, Decision, Store, memory::Memory};
use limits::{
    Micros,
    decision::{Outcome, Reason, State, decide, penalise},
    members,
};

use crate::{policies, script::Script};

/// An instant of the fake clock, in µs; cases count from here.
const T0: u64 = 1_760_000_000_123_456;

/// Times are µs; `at` counts from [`T0`].
pub enum Step {
    /// Wants per class, and per class: granted, wait, reason.
    Ask(i64, [u64; 2], [(u64, u64, Option<Reason>); 2]),
    /// Pause, report id, what is left of the stop.
    Throttled(i64, u64, &'static str, u64),
}
use Step::{Ask, Throttled};

const RATE: Option<Reason> = Some(Reason::Rate);
const CLASS: Option<Reason> = Some(Reason::ClassRate);
const STOP: Option<Reason> = Some(Reason::Penalty);
const FREE: (u64, u64, Option<Reason>) = (0, 0, None);

/// 90/s and for marketing 70/s, both with a burst of 5: intervals of 11,112 and 14,286 µs.
pub const CASES: [(&str, &[Step]); 10] = [
    (
        "from idle exactly the burst passes, the next waits one interval",
        &[
            Ask(0, [4, 0], [(4, 0, None), FREE]),
            Ask(0, [2, 0], [(1, 11_112, RATE), (0, 11_112, RATE)]),
            Ask(11_111, [1, 0], [(0, 1, RATE), (0, 1, RATE)]),
            Ask(11_112, [1, 0], [(1, 11_112, RATE), (0, 11_112, RATE)]),
        ],
    ),
    (
        "the class in front is served first",
        &[Ask(0, [3, 9], [(3, 11_112, RATE), (2, 11_112, RATE)])],
    ),
    (
        "a capped class waits for its own rate, the other does not",
        &[
            Ask(0, [0, 5], [(0, 11_112, RATE), (5, 14_286, CLASS)]),
            Ask(11_112, [0, 1], [FREE, (0, 3_174, CLASS)]),
            Ask(11_112, [1, 0], [(1, 11_112, RATE), (0, 11_112, RATE)]),
        ],
    ),
    (
        "refused by one rate, charged by none",
        &[
            Ask(0, [5, 5], [(5, 11_112, RATE), (0, 11_112, RATE)]),
            Ask(55_560, [0, 6], [(0, 11_112, RATE), (5, 14_286, CLASS)]),
        ],
    ),
    (
        "nothing wanted: only the waits",
        &[
            Ask(0, [0, 0], [FREE, FREE]),
            Ask(0, [5, 0], [(5, 11_112, RATE), (0, 11_112, RATE)]),
            Ask(0, [0, 0], [(0, 11_112, RATE), (0, 11_112, RATE)]),
        ],
    ),
    (
        "idle time earns no more than the burst",
        &[
            Ask(0, [9, 0], [(5, 11_112, RATE), (0, 11_112, RATE)]),
            Ask(86_400_000_000, [9, 0], [(5, 11_112, RATE), (0, 11_112, RATE)]),
        ],
    ),
    (
        "a stop holds everyone and charges nobody",
        &[
            Throttled(0, 1_000_000, "a", 1_000_000),
            Ask(1, [1, 1], [(0, 999_999, STOP), (0, 999_999, STOP)]),
            Ask(1_000_000, [5, 0], [(5, 11_112, RATE), (0, 11_112, RATE)]),
        ],
    ),
    (
        "a stop is lengthened, never shortened, and a report counts once",
        &[
            Throttled(0, 1_000_000, "a", 1_000_000),
            Throttled(500_000, 100_000, "b", 500_000),
            Throttled(500_000, 2_000_000, "a", 500_000),
            Throttled(500_000, 2_000_000, "c", 2_000_000),
            Throttled(600_000, 2_000_000, "c", 1_900_000),
        ],
    ),
    (
        "a stop is no longer than max_pause",
        &[
            Throttled(0, u64::MAX, "a", 3_600_000_000),
            Throttled(0, 0, "b", 3_600_000_000),
            Throttled(-7_200_000_000, 0, "c", 3_600_000_000),
        ],
    ),
    (
        "a clock that steps back an hour stalls nobody for an hour",
        &[
            Ask(3_600_000_000, [5, 0], [(5, 11_112, RATE), (0, 11_112, RATE)]),
            Ask(0, [1, 0], [(0, 11_112, RATE), (0, 11_112, RATE)]),
            Ask(11_112, [1, 0], [(1, 11_112, RATE), (0, 11_112, RATE)]),
        ],
    ),
];

/// What the Rust decision says, as a store does.
pub fn decided(
    account: &Account,
    state: &mut State,
    now: Micros,
    asks: &[members::Ask],
) -> Decision {
    let Outcome { shares, standings } = decide(&account.rules, state, now, asks);
    Decision { now, penalty: state.penalty_until.minus(now), born: state.born, shares, standings }
}

fn at(offset: i64) -> Micros {
    Micros(T0.saturating_add_signed(offset))
}

/// Runs every case on a fresh subject made by `subject`.
fn check<S>(
    subject: impl Fn(&Account) -> S,
    mut ask: impl FnMut(&mut S, Micros, &[members::Ask]) -> Decision,
    mut throttled: impl FnMut(&mut S, Micros, Micros, &str) -> Micros,
) {
    let account = policies::account("sample", policies::SAMPLE);
    for (name, steps) in &CASES {
        let mut subject = subject(&account);
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Ask(offset, wants, expected) => {
                    let asks = [members::Ask { caller: None, wants: wants.to_vec() }];
                    let decision = ask(&mut subject, at(offset), &asks);
                    let got: Vec<_> = decision
                        .shares
                        .iter()
                        .map(|share| (share.granted, share.wait.0, share.reason))
                        .collect();
                    assert_eq!(got, expected, "{name}, step {index}");
                    assert_eq!(decision.now, at(offset), "{name}, step {index}");
                }
                Throttled(offset, pause, id, expected) => {
                    let left = throttled(&mut subject, at(offset), Micros(pause), id);
                    assert_eq!(left, Micros(expected), "{name}, step {index}");
                }
            }
        }
    }
}

#[test]
fn the_cases_hold_for_the_rust_decision() {
    let account = policies::account("sample", policies::SAMPLE);
    let mut known = Vec::new();
    check(
        |_| State::default(),
        |state, now, asks| decided(&account, state, now, asks),
        |state, now, pause, id| {
            if now == at(0) {
                known.clear();
            }
            let is_known = known.contains(&id.to_owned());
            known.push(id.to_owned());
            let pause = if is_known { Micros::ZERO } else { pause };
            penalise(&account.rules, state, now, pause)
        },
    );
}

#[test]
fn the_cases_hold_for_the_script() {
    check(
        Script::new,
        |script, now, asks| script.decide(now, asks),
        |script, now, pause, id| script.throttled(now, pause, id),
    );
}

#[test]
fn the_cases_hold_for_the_memory_store() {
    let clock = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    check(
        |account| {
            let clock = Arc::clone(&clock);
            Memory::with_clock(vec![account.clone()], move || Micros(clock.load(Ordering::SeqCst)))
        },
        |store, now, asks| {
            clock.store(now.0, Ordering::SeqCst);
            runtime.block_on(store.decide(0, asks)).unwrap()
        },
        |store, now, pause, id| {
            clock.store(now.0, Ordering::SeqCst);
            runtime.block_on(store.throttled(0, pause, id)).unwrap()
        },
    );
}
