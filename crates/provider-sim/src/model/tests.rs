//! Every expectation here was worked out by hand from the arrival list beside it.

use super::*;

mod in_flight;
mod kinds;
mod waits;

const SECOND: Duration = Duration::from_secs(1);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn rolling(limit: u64) -> WindowSpec {
    WindowSpec::Rolling { limit, window: SECOND }
}

fn fixed(limit: u64, phase: Duration) -> WindowSpec {
    WindowSpec::Fixed { limit, window: SECOND, phase, jump: None }
}

fn spec(windows: Vec<WindowSpec>) -> ModelSpec {
    ModelSpec { windows, counted: Counted::Arrival, count_refused: false, suspension: None }
}

fn suspending(after: usize, within: Duration, length: Duration) -> ModelSpec {
    ModelSpec {
        suspension: Some(SuspensionSpec { after, within, length }),
        // Nothing is admitted, so every arrival is a refusal.
        ..spec(vec![rolling(0)])
    }
}

fn letter(verdict: Verdict) -> char {
    match verdict {
        Verdict::Accept => 'a',
        Verdict::Refuse { .. } => 'r',
        Verdict::Suspended { .. } => 's',
    }
}

/// Sends one call of one unit at each instant (ms): `a` accepted, `r` refused, `s` suspended.
fn check(spec: ModelSpec, arrivals: &[u64], expected: &str) {
    let with_units: Vec<_> = arrivals.iter().map(|&at| (at, 1)).collect();
    check_units(spec, &with_units, expected);
}

/// The same with (ms, units).
fn check_units(spec: ModelSpec, arrivals: &[(u64, u32)], expected: &str) {
    let mut model = Model::new(spec);
    let verdicts: String = arrivals
        .iter()
        .map(|&(at, units)| model.arrive(ms(at), units).map_or('?', letter))
        .collect();
    assert_eq!(verdicts, expected, "arrivals at (ms, units) {arrivals:?}");
}

fn arrive(model: &mut Model, at: u64) -> char {
    model.arrive(ms(at), 1).map_or('?', letter)
}

#[test]
fn rolling_refuses_the_call_above_the_limit() {
    check(spec(vec![rolling(2)]), &[0, 0, 0], "aar");
}

#[test]
fn rolling_window_is_half_open() {
    check(spec(vec![rolling(1)]), &[0, 999, 1000], "ara");
}

#[test]
fn rolling_sees_a_burst_that_straddles_a_whole_second() {
    check(spec(vec![rolling(2)]), &[900, 950, 1050, 1899, 1900], "aarra");
}

#[test]
fn rolling_frees_one_place_for_each_call_that_leaves() {
    check(spec(vec![rolling(3)]), &[0, 400, 800, 1000, 1001, 1400, 1700, 1800], "aaaarara");
}

#[test]
fn limit_zero_refuses_everything() {
    check(spec(vec![rolling(0)]), &[0, 5000], "rr");
    check(spec(vec![fixed(0, ms(0))]), &[0, 5000], "rr");
}

#[test]
fn refused_calls_use_no_quota_unless_asked() {
    let arrivals = [0, 500, 1000, 1499, 2499];
    check(spec(vec![rolling(1)]), &arrivals, "arara");
    let counting = ModelSpec { count_refused: true, ..spec(vec![rolling(1)]) };
    check(counting, &arrivals, "arrra");
}

#[test]
fn fixed_lets_a_double_burst_straddle_its_edge() {
    check(spec(vec![fixed(2, ms(0))]), &[900, 950, 999, 1000, 1001, 1002, 2000], "aaraara");
}

#[test]
fn fixed_window_turns_at_its_phase() {
    check(spec(vec![fixed(1, ms(370))]), &[0, 369, 370, 1000, 1369, 1370], "ararra");
}

#[test]
fn composed_windows_all_bind() {
    let burst = WindowSpec::Rolling { limit: 1, window: ms(100) };
    check(spec(vec![burst, rolling(3)]), &[0, 50, 100, 200, 300, 1000], "araara");
}

#[test]
fn a_call_refused_by_one_window_uses_no_quota_of_the_other() {
    let burst = WindowSpec::Rolling { limit: 1, window: ms(100) };
    check(spec(vec![rolling(2), burst]), &[0, 10, 20, 100], "arra");
}

#[test]
fn suspension_needs_one_refusal_more_than_the_limit() {
    check(suspending(2, ms(10_000), ms(60_000)), &[0, 1, 2, 3, 60_001, 60_002], "rrrssr");
}

#[test]
fn suspension_forgets_refusals_of_longer_ago() {
    check(suspending(2, SECOND, ms(5_000)), &[0, 500, 1000, 1499, 1500], "rrrrs");
}

#[test]
fn suspended_calls_do_not_lengthen_the_suspension() {
    check(suspending(0, SECOND, ms(5_000)), &[0, 1, 2_500, 4_999, 5_000], "rsssr");
}

#[test]
fn after_a_suspension_the_count_begins_anew() {
    check(suspending(2, ms(10_000), SECOND), &[0, 1, 2, 1002, 1003, 1004, 1005], "rrrrrrs");
}

#[test]
fn the_first_of_two_suspensions_is_remembered() {
    let mut model = Model::new(suspending(0, SECOND, SECOND));
    arrive(&mut model, 100);
    arrive(&mut model, 5_000);
    assert_eq!(model.suspended_for(ms(5_000)), Some(SECOND));
    assert_eq!(model.first_suspended_at(), Some(ms(100)));
}

#[test]
fn suspension_names_the_time_that_is_left() {
    let mut model = Model::new(suspending(0, SECOND, ms(5_000)));
    assert_eq!(arrive(&mut model, 100), 'r');
    let remaining = ms(3_000);
    assert_eq!(model.arrive(ms(2_100), 1), Some(Verdict::Suspended { remaining }));
    assert_eq!(model.first_suspended_at(), Some(ms(100)));
    assert_eq!(model.suspended_for(ms(5_099)), Some(ms(1)));
    assert_eq!(model.suspended_for(ms(5_100)), None);
}

#[test]
fn the_real_account_stops_at_the_301st_refusal() {
    let mut model = Model::new(suspending(300, ms(600_000), ms(3_600_000)));
    for at in 0..301 {
        assert_eq!(arrive(&mut model, at), 'r', "refusal {at}");
    }
    assert_eq!(model.first_suspended_at(), Some(ms(300)));
    let remaining = ms(3_599_999);
    assert_eq!(model.arrive(ms(301), 1), Some(Verdict::Suspended { remaining }));
}

#[test]
fn forced_refusals_lead_to_suspension_and_forced_acceptances_use_quota() {
    let mut model =
        Model::new(ModelSpec { windows: vec![rolling(1)], ..suspending(1, SECOND, SECOND) });
    model.record_acceptance(ms(0), 1);
    assert_eq!(arrive(&mut model, 1), 'r');
    model.record_refusal(ms(2));
    assert_eq!(model.suspended_for(ms(2)), Some(SECOND));
}

#[test]
fn changing_the_suspension_keeps_the_window() {
    let mut model = Model::new(spec(vec![rolling(1)]));
    assert_eq!(arrive(&mut model, 0), 'a');
    model.reconfigure(ModelSpec { windows: vec![rolling(1)], ..suspending(5, SECOND, SECOND) });
    assert_eq!(arrive(&mut model, 1), 'r');
    model.reconfigure(spec(vec![rolling(2)]));
    assert_eq!(arrive(&mut model, 2), 'a');
}
