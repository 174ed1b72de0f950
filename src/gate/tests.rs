use std::{cell::RefCell, collections::HashMap};

use limits::gcra::Gcra;

use super::*;
use crate::{calls::tests::limit, config::Share};

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
    Gate::new(&limit(), "7", own())
}

/// One a second is the gateway's own for ever, ten a second while the store keeps them free.
fn own() -> Own {
    let share = |interval| Share { all: Some(Gcra::spaced(interval)), caps: vec![None, None] };
    Own { headroom: share(Micros::SECOND), target: share(Micros::from_millis(100)) }
}

fn answer(known: &[Known], penalty: Micros, born: u64) -> Answer {
    let (now, born, standing) = (Micros(1_000_000), Micros(born), Standing::Member);
    Answer { granted: vec![0, 0], known: known.to_vec(), penalty, now, born, standing }
}

/// True if the decider had been unreachable.
fn learn(gate: &mut Gate, map: &Map, known: &[Known], penalty: Micros, now: Micros) -> bool {
    gate.learn(map, &answer(known, penalty, 1), None, now).recovered
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
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &marketing_waits(14), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(0)), refused(14, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(13)), refused(1, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(14)), Admission::Ask);
    assert_eq!(gate.admit(&map, OTP, after(0)), Admission::Ask);
}

#[test]
fn a_long_refusal_is_asked_again_after_a_second_but_told_in_full() {
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &marketing_waits(60_000), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(999)), refused(59_001, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(1_000)), Admission::Ask);
}

#[test]
fn a_refusal_that_was_asked_again_is_remembered_again() {
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &marketing_waits(60_000), Micros::ZERO, NOW);
    learn(&mut gate, &map, &marketing_waits(30_000), Micros::ZERO, after(1_000));
    assert_eq!(gate.admit(&map, MARKETING, after(1_001)), refused(29_999, Reason::ClassRate));
}

#[test]
fn an_answer_that_was_overtaken_shortens_nothing() {
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &marketing_waits(28), Micros::ZERO, NOW);
    learn(&mut gate, &map, &marketing_waits(14), Micros::ZERO, NOW);
    learn(&mut gate, &map, &marketing_waits(0), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(20)), refused(8, Reason::ClassRate));
}

#[test]
fn a_pause_stops_every_class_and_is_never_shortened() {
    let (mut gate, map) = (gate(), Map::default());
    gate.pause(&map, Micros::from_secs(10), NOW);
    assert_eq!(gate.pause(&map, Micros::SECOND, NOW), after(10_000));
    for class in [OTP, MARKETING] {
        assert_eq!(gate.admit(&map, class, after(9_999)), refused(1, Reason::Penalty));
        assert_eq!(gate.admit(&map, class, after(10_000)), Admission::Ask);
    }
}

#[test]
fn after_a_failure_only_the_own_share_goes_and_one_probe() {
    let (mut gate, map) = (gate(), Map::default());
    assert!(gate.failed(&map, Call::Ask, NOW), "the first one opens");
    assert!(!gate.failed(&map, Call::Ask, NOW), "the second one changes nothing");
    assert_eq!(gate.admit(&map, OTP, NOW), Admission::Forward);
    let share_used = refuse(Micros::SECOND, Cause::Fallback);
    assert_eq!(gate.admit(&map, OTP, NOW), share_used);
    assert!(!gate.claim_probe(&map, after(99)));
    assert!(gate.claim_probe(&map, after(100)));
    assert!(!gate.claim_probe(&map, after(100)), "another worker has it");
    assert!(learn(&mut gate, &map, &[], Micros::ZERO, after(101)), "recovered");
    assert_eq!(gate.admit(&map, OTP, after(101)), Admission::Ask);
}

#[test]
fn probes_come_at_least_every_second() {
    let (mut gate, map) = (gate(), Map::default());
    for _ in 0..100 {
        gate.failed(&map, Call::Probe, NOW);
    }
    assert!(gate.claim_probe(&map, after(1_000)));
}

#[test]
fn a_stop_that_the_decider_told_of_holds_when_it_is_gone() {
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &[], Micros::from_secs(3), NOW);
    gate.failed(&map, Call::Ask, NOW);
    assert_eq!(gate.admit(&map, OTP, after(2_999)), refused(1, Reason::Penalty));
    assert_eq!(gate.admit(&map, OTP, after(3_000)), Admission::Forward);
}

/// Marketing has just been asked for by a worker, `ms` after [`NOW`], and it was due at 14 ms.
fn claimed_at(ms: u64) -> (Gate, Map) {
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &marketing_waits(14), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(ms)), Admission::Ask);
    gate.ask(&map, &[0, 3], after(ms));
    (gate, map)
}

#[test]
fn what_has_just_become_due_is_asked_for_once() {
    // 90/s: the next one is due 11.112 ms later.
    let (mut gate, map) = claimed_at(14);
    let wait = Micros(25_112 - 15_000);
    let refused = refuse(wait, Cause::Decided(Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(15)), refused);
    assert_eq!(gate.admit(&map, OTP, after(15)), Admission::Ask, "another class");
    assert_eq!(gate.admit(&map, MARKETING, after(26)), Admission::Ask, "no claim is for ever");
}

#[test]
fn the_answer_takes_the_place_of_the_claim() {
    let (mut gate, map) = claimed_at(14);
    learn(&mut gate, &map, &marketing_waits(3), Micros::ZERO, after(16));
    assert_eq!(gate.admit(&map, MARKETING, after(18)), refused(1, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(19)), Admission::Ask);
    let (mut gate, map) = claimed_at(14);
    learn(&mut gate, &map, &marketing_waits(0), Micros::ZERO, after(16));
    assert_eq!(gate.admit(&map, MARKETING, after(16)), Admission::Ask, "one more could go");
    let (mut gate, map) = claimed_at(14);
    gate.failed(&map, Call::Ask, after(16));
    assert_eq!(gate.admit(&map, MARKETING, after(16)), Admission::Forward, "no answer will come");
}

#[test]
fn what_has_been_idle_is_claimed_by_nobody() {
    // More than one of the burst is there by then: the next worker may get it.
    let (mut gate, map) = claimed_at(26);
    assert_eq!(gate.admit(&map, MARKETING, after(26)), Admission::Ask);
}

#[test]
fn the_end_of_a_stop_is_claimed_by_nobody() {
    let (mut gate, map) = (gate(), Map::default());
    let stopped = Known { wait: Micros::from_millis(14), reason: Some(Reason::Penalty) };
    learn(&mut gate, &map, &[stopped, stopped], Micros::from_millis(14), NOW);
    gate.ask(&map, &[1, 1], after(14));
    assert_eq!(gate.admit(&map, OTP, after(14)), Admission::Ask);
}

#[test]
fn one_look_serves_a_millisecond_and_no_longer() {
    let (mut gate, map) = (gate(), Map::default());
    let mut other = gate.clone();
    assert_eq!(gate.admit(&map, OTP, NOW), Admission::Ask);
    other.pause(&map, Micros::SECOND, NOW);
    assert_eq!(gate.admit(&map, OTP, NOW.plus(Micros(999))), Admission::Ask, "not looked again");
    assert_eq!(gate.admit(&map, OTP, after(1)), refused(999, Reason::Penalty));
}

/// A gate of a limit with a leased fallback.
fn leased() -> (Gate, Map) {
    let terms = Terms {
        lease: Micros::SECOND,
        forget_after: Micros::from_secs(60),
        gateways: 2,
        timeout: Micros::from_millis(50),
    };
    let limit = Limit { terms: Some(terms), ..limit() };
    (Gate::new(&limit, "7", own()), Map::default())
}

#[test]
fn a_gateway_reads_the_clock_before_it_asks_and_then_renews() {
    let (mut gate, map) = leased();
    assert_eq!(gate.ask(&map, &[1, 0], NOW), Asking::ReadClock);
    learn(&mut gate, &map, &[], Micros::ZERO, after(2));
    // The store showed 1 s; a time-out of 50 ms later it gives up.
    let deadline = Some(Micros(1_050_000));
    assert_eq!(gate.ask(&map, &[1, 0], after(2)), Asking::Ask { deadline });
    gate.failed(&map, Call::Ask, after(3));
    assert_eq!(gate.ask(&map, &[1, 0], after(4)), Asking::Not);
}

/// How many of an OTP every millisecond go without the decider from `from` to `to` (ms after [`NOW`]).
fn own_grants(gate: &mut Gate, map: &Map, from: u64, to: u64) -> usize {
    (from..to).filter(|ms| gate.admit(map, OTP, after(*ms)) == Admission::Forward).count()
}

#[test]
fn a_cut_off_member_is_dark_for_a_lease_and_then_sends_on_its_share() {
    let (mut gate, map) = leased();
    learn(&mut gate, &map, &[], Micros::ZERO, NOW);
    gate.ask(&map, &[1, 0], NOW);
    gate.learn(&map, &answer(&[], Micros::ZERO, 1), Some(NOW), after(1));
    gate.ask(&map, &[1, 0], after(10));
    gate.failed(&map, Call::Ask, after(60));
    assert_eq!(own_grants(&mut gate, &map, 60, 1_060), 1, "dark");
    assert_eq!(own_grants(&mut gate, &map, 1_200, 11_200), 100, "ten a second");
}

#[test]
fn a_gateway_that_is_no_member_never_sends_on_a_share() {
    let (mut gate, map) = leased();
    learn(&mut gate, &map, &[], Micros::ZERO, NOW);
    gate.ask(&map, &[1, 0], NOW);
    let guest = Answer { standing: Standing::Guest, ..answer(&[], Micros::ZERO, 1) };
    gate.learn(&map, &guest, Some(NOW), after(1));
    gate.failed(&map, Call::Ask, after(60));
    assert_eq!(own_grants(&mut gate, &map, 60, 10_060), 10);
}

#[test]
fn a_worker_that_has_not_seen_the_decider_return_sends_no_more_on_its_own() {
    let (mut gate, map) = leased();
    let mut other = gate.clone();
    gate.failed(&map, Call::Ask, NOW);
    other.admit(&map, OTP, NOW);
    learn(&mut gate, &map, &[], Micros::ZERO, after(2_000));
    other.shared.seen_at = Some(after(2_000));
    assert_eq!(other.admit(&map, OTP, after(2_000)), Admission::Ask);
}

#[test]
fn a_quiet_member_renews_and_an_idle_one_leaves_once() {
    let (mut gate, map) = leased();
    learn(&mut gate, &map, &[], Micros::ZERO, NOW);
    gate.admit(&map, OTP, NOW);
    gate.ask(&map, &[1, 0], NOW);
    gate.learn(&map, &answer(&[], Micros::ZERO, 1), Some(NOW), after(1));
    let mut duties = Vec::new();
    for ms in (50..8_000).step_by(50) {
        gate.touch(&map, after(ms));
        let duty = gate.claim_duty(&map, after(ms)).map(|(duty, _)| (ms, duty));
        if matches!(duty, Some((_, Duty::Renew))) {
            gate.learn(&map, &answer(&[], Micros::ZERO, 1), Some(after(ms)), after(ms + 1));
        }
        duties.extend(duty);
    }
    let renewals = duties.iter().filter(|(_, duty)| *duty == Duty::Renew).count();
    assert_eq!((duties[0], renewals), ((350, Duty::Renew), 14), "{duties:?}");
    assert_eq!(duties.last(), Some(&(5_000, Duty::Leave)));
    assert_eq!(duties.len(), 15, "it leaves once");
}

#[test]
fn a_store_without_memory_is_told_of_the_stop_again() {
    let (mut gate, map) = leased();
    let minute = Micros::from_secs(60);
    assert_eq!(gate.learn(&map, &answer(&[], minute, 1), None, NOW).forgotten, None);
    let same = gate.learn(&map, &answer(&[], Micros::ZERO, 1), None, after(1_000));
    assert_eq!(same.forgotten, None, "it may have been lifted");
    let other = gate.learn(&map, &answer(&[], Micros::ZERO, 2), None, after(1_000));
    assert_eq!(other.forgotten, Some(Micros::from_secs(59)));
    assert_eq!(gate.admit(&map, OTP, after(1_000)), refused(59_000, Reason::Penalty));
    let again = gate.learn(&map, &answer(&[], Micros::ZERO, 2), None, after(1_001));
    assert_eq!(again.forgotten, None, "told once");
}

#[test]
fn a_paused_gateway_looks_at_the_store_every_second() {
    let (mut gate, map) = (gate(), Map::default());
    learn(&mut gate, &map, &[], Micros::ZERO, NOW);
    gate.pause(&map, Micros::from_secs(60), NOW);
    let probes: Vec<u64> = (0..5_000).filter(|ms| gate.claim_probe(&map, after(*ms))).collect();
    assert_eq!(probes, [1_000, 2_000, 3_000, 4_000]);
}
