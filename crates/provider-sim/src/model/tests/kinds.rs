//! Each kind of quota, and what changes it.

use super::*;

fn per_100ms(limit: u64) -> WindowSpec {
    WindowSpec::Rolling { limit, window: ms(100) }
}

fn leaky(limit: u64, capacity: u64) -> WindowSpec {
    WindowSpec::Leaky { limit, window: SECOND, capacity }
}

fn jumping(every: u64, by: u64) -> WindowSpec {
    let jump = Some(Jump { every: ms(every), by: ms(by) });
    WindowSpec::Fixed { limit: 1, window: SECOND, phase: ms(0), jump }
}

#[test]
fn a_short_window_refuses_what_the_second_would_have_taken() {
    let burst: Vec<u64> = (0..12).chain([99, 100, 101]).collect();
    check(spec(vec![per_100ms(10), rolling(100)]), &burst, "aaaaaaaaaarrraa");
}

#[test]
fn second_and_minute_both_bind() {
    let minute = WindowSpec::Rolling { limit: 3, window: ms(60_000) };
    let arrivals = [0, 1, 1_000, 2_000, 3_000, 60_000, 60_001, 61_000];
    check(spec(vec![rolling(1), minute]), &arrivals, "araarara");
}

#[test]
fn leaky_takes_its_capacity_at_once_and_then_what_drains() {
    // 10 ms drain one unit.
    let burst = [0, 0, 0, 9, 10, 10, 15, 20, 1_000, 1_000, 1_000, 1_000];
    check(spec(vec![leaky(100, 3)]), &burst, "aaararraaaar");
}

#[test]
fn leaky_earns_no_more_than_its_capacity_by_idling() {
    check(spec(vec![leaky(100, 2)]), &[0, 60_000, 60_000, 60_000], "aaar");
}

#[test]
fn leaky_drains_exactly_however_often_it_is_asked() {
    // 3 units per second: one each 333.33 ms, asked each ms.
    let mut model = Model::new(spec(vec![leaky(3, 1)]));
    let accepted: Vec<u64> = (0..=1_000).filter(|&at| arrive(&mut model, at) == 'a').collect();
    assert_eq!(accepted, [0, 334, 668]);
}

#[test]
fn leaky_that_counts_refused_calls_is_never_more_than_full() {
    let counting = ModelSpec { count_refused: true, ..spec(vec![leaky(100, 2)]) };
    check(counting, &[0, 0, 0, 0, 10, 20], "aarraa");
}

#[test]
fn units_are_charged_together_or_not_at_all() {
    let arrivals = [(0, 7), (1, 4), (2, 3), (3, 1), (1_000, 7), (1_001, 1)];
    check_units(spec(vec![rolling(10)]), &arrivals, "ararar");
    check_units(spec(vec![fixed(10, ms(0))]), &arrivals, "araraa");
    check_units(spec(vec![leaky(1, 10)]), &arrivals[..4], "arar");
}

#[test]
fn a_call_dearer_than_the_limit_is_never_admitted() {
    for window in [rolling(10), fixed(10, ms(0)), leaky(100, 10)] {
        check_units(spec(vec![window]), &[(0, 11), (60_000, 11), (60_001, 10)], "rra");
    }
}

#[test]
fn a_jump_restarts_the_counter_and_moves_the_windows() {
    // Windows [0, 1000), [1000, 1500) and, after the jump, [1500, 2370), [2370, 3000).
    let arrivals = [0, 999, 1_000, 1_499, 1_500, 2_369, 2_370, 2_999];
    check(spec(vec![jumping(1_500, 370)]), &arrivals, "arararar");
}

#[test]
fn each_jump_moves_on_from_the_one_before() {
    // Phase 0, 700, 400 (1400 less a second), from 0 s, 3 s and 6 s on.
    let arrivals = [2_999, 3_000, 3_699, 3_700, 6_000, 6_399, 6_400, 7_399, 7_400];
    check(spec(vec![jumping(3_000, 700)]), &arrivals, "aaraarara");
}

#[test]
fn a_restart_begins_a_window_at_once_unless_told_its_phase() {
    let mut model = Model::new(spec(vec![fixed(1, ms(0))]));
    assert_eq!([900, 950].map(|at| arrive(&mut model, at)), ['a', 'r']);
    model.restart(ms(960), None);
    assert_eq!([970, 1_959, 1_960].map(|at| arrive(&mut model, at)), ['a', 'r', 'a']);
    model.restart(ms(2_000), Some(ms(300)));
    assert_eq!([2_000, 2_299, 2_300].map(|at| arrive(&mut model, at)), ['a', 'r', 'a']);
}

#[test]
fn a_restart_leaves_a_rolling_log_alone() {
    let mut model = Model::new(spec(vec![rolling(1)]));
    assert_eq!(arrive(&mut model, 0), 'a');
    model.restart(ms(10), None);
    assert_eq!(arrive(&mut model, 20), 'r');
}

/// Two calls at 0 ms, then another specification, then one call at each of `arrivals`.
fn check_changed(before: WindowSpec, after: WindowSpec, arrivals: &[u64], expected: &str) {
    let mut model = Model::new(spec(vec![before]));
    for _ in 0..2 {
        assert_eq!(arrive(&mut model, 0), 'a');
    }
    model.reconfigure(spec(vec![after.clone()]));
    let verdicts: String = arrivals.iter().map(|&at| arrive(&mut model, at)).collect();
    assert_eq!(verdicts, expected, "{after:?}, arrivals at {arrivals:?} ms");
}

#[test]
fn a_limit_that_is_cut_counts_what_was_accepted_before() {
    check_changed(rolling(4), rolling(2), &[1, 1_000], "ra");
    check_changed(fixed(4, ms(0)), fixed(2, ms(0)), &[1, 1_000], "ra");
    check_changed(leaky(1, 4), leaky(1, 2), &[1, 1_000], "ra");
}

#[test]
fn a_limit_that_is_raised_counts_it_too() {
    check_changed(rolling(2), rolling(3), &[1, 2], "ar");
    check_changed(fixed(2, ms(0)), fixed(3, ms(0)), &[1, 2], "ar");
    check_changed(leaky(1, 2), leaky(1, 3), &[1, 2], "ar");
}

#[test]
fn calls_in_flight_count_for_another_limit_too() {
    let places = |limit| WindowSpec::Concurrency { limit };
    check_changed(places(2), places(3), &[1, 2], "ar");
    check_changed(places(3), places(2), &[1], "r");
}

#[test]
fn another_phase_or_kind_begins_anew() {
    check_changed(fixed(2, ms(0)), fixed(2, ms(370)), &[1, 2, 3], "aar");
    check_changed(rolling(2), fixed(2, ms(0)), &[1, 2, 3], "aar");
}

#[test]
fn a_bucket_with_another_window_holds_the_same_units() {
    let slow = WindowSpec::Leaky { limit: 1, window: ms(10_000), capacity: 2 };
    check_changed(leaky(1, 2), slow, &[1, 9_999, 10_000], "rra");
}

#[test]
fn each_window_knows_what_it_refused() {
    let mut model = Model::new(spec(vec![per_100ms(1), rolling(2)]));
    let verdicts: String = [0, 1, 100, 101, 300].map(|at| arrive(&mut model, at)).iter().collect();
    assert_eq!(verdicts, "ararr");
    assert_eq!(model.refused_by(), [2, 2]);
}
