use std::{cell::RefCell, collections::HashMap};

use limits::gcra::Gcra;

use super::*;
use crate::calls::tests::limit;

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
    Gate::new(&limit(), "7", Headroom { share, caps: vec![None, None] })
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
    gate.learn(&map, &marketing_waits(14), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(0)), refused(14, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(13)), refused(1, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(14)), Admission::Ask);
    assert_eq!(gate.admit(&map, OTP, after(0)), Admission::Ask);
}

#[test]
fn a_long_refusal_is_asked_again_after_a_second_but_told_in_full() {
    let (mut gate, map) = (gate(), Map::default());
    gate.learn(&map, &marketing_waits(60_000), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(999)), refused(59_001, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(1_000)), Admission::Ask);
}

#[test]
fn a_refusal_that_was_asked_again_is_remembered_again() {
    let (mut gate, map) = (gate(), Map::default());
    gate.learn(&map, &marketing_waits(60_000), Micros::ZERO, NOW);
    gate.learn(&map, &marketing_waits(30_000), Micros::ZERO, after(1_000));
    assert_eq!(gate.admit(&map, MARKETING, after(1_001)), refused(29_999, Reason::ClassRate));
}

#[test]
fn an_answer_that_was_overtaken_shortens_nothing() {
    let (mut gate, map) = (gate(), Map::default());
    gate.learn(&map, &marketing_waits(28), Micros::ZERO, NOW);
    gate.learn(&map, &marketing_waits(14), Micros::ZERO, NOW);
    gate.learn(&map, &marketing_waits(0), Micros::ZERO, NOW);
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
    assert!(gate.failed(&map, false, NOW), "the first one opens");
    assert!(!gate.failed(&map, false, NOW), "the second one changes nothing");
    assert_eq!(gate.admit(&map, OTP, NOW), Admission::Forward);
    let share_used = refuse(Micros::SECOND, Cause::Fallback);
    assert_eq!(gate.admit(&map, OTP, NOW), share_used);
    assert!(!gate.claim_probe(&map, after(99)));
    assert!(gate.claim_probe(&map, after(100)));
    assert!(!gate.claim_probe(&map, after(100)), "another worker has it");
    assert!(gate.learn(&map, &[], Micros::ZERO, after(101)), "recovered");
    assert_eq!(gate.admit(&map, OTP, after(101)), Admission::Ask);
}

#[test]
fn probes_come_at_least_every_second() {
    let (mut gate, map) = (gate(), Map::default());
    for _ in 0..100 {
        gate.failed(&map, true, NOW);
    }
    assert!(gate.claim_probe(&map, after(1_000)));
}

#[test]
fn a_stop_that_the_decider_told_of_holds_when_it_is_gone() {
    let (mut gate, map) = (gate(), Map::default());
    gate.learn(&map, &[], Micros::from_secs(3), NOW);
    gate.failed(&map, false, NOW);
    assert_eq!(gate.admit(&map, OTP, after(2_999)), refused(1, Reason::Penalty));
    assert_eq!(gate.admit(&map, OTP, after(3_000)), Admission::Forward);
}

/// Marketing has just been asked for by a worker, `ms` after [`NOW`], and it was due at 14 ms.
fn claimed_at(ms: u64) -> (Gate, Map) {
    let (mut gate, map) = (gate(), Map::default());
    gate.learn(&map, &marketing_waits(14), Micros::ZERO, NOW);
    assert_eq!(gate.admit(&map, MARKETING, after(ms)), Admission::Ask);
    gate.claim(&map, &[0, 3], after(ms));
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
    gate.learn(&map, &marketing_waits(3), Micros::ZERO, after(16));
    assert_eq!(gate.admit(&map, MARKETING, after(18)), refused(1, Reason::ClassRate));
    assert_eq!(gate.admit(&map, MARKETING, after(19)), Admission::Ask);
    let (mut gate, map) = claimed_at(14);
    gate.learn(&map, &marketing_waits(0), Micros::ZERO, after(16));
    assert_eq!(gate.admit(&map, MARKETING, after(16)), Admission::Ask, "one more could go");
    let (mut gate, map) = claimed_at(14);
    gate.failed(&map, false, after(16));
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
    gate.learn(&map, &[stopped, stopped], Micros::from_millis(14), NOW);
    gate.claim(&map, &[1, 1], after(14));
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
