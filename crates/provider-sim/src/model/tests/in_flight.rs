//! Calls that take time: concurrency, and quotas that count when the work is done.

use super::*;

/// Ends what ends up to `now`; verdicts go to their call's place, which is its number.
fn end_until(model: &mut Model, now: u64, verdicts: &mut [char]) {
    while model.next_end().is_some_and(|end| end <= ms(now)) {
        if let Some(Finished { id, verdict: Some((verdict, _)), .. }) = model.end_next() {
            verdicts[id as usize] = letter(verdict);
        }
    }
}

/// Runs calls (arrival, end of work) in ms, in the order of their arrival; each gets its letter.
fn run(model: &mut Model, calls: &[(u64, u64)]) -> String {
    let mut verdicts = vec!['?'; calls.len()];
    for (id, &(at, end)) in (0..).zip(calls) {
        end_until(model, at, &mut verdicts);
        let early = model.arrive(ms(at), 1);
        if let Some(verdict) = early {
            verdicts[id as usize] = letter(verdict);
        }
        if early.is_none_or(|verdict| verdict == Verdict::Accept) {
            model.hold(id, ms(end), early.is_none().then_some(1));
        }
    }
    end_until(model, u64::MAX / 2, &mut verdicts);
    verdicts.into_iter().collect()
}

fn check_calls(spec: ModelSpec, calls: &[(u64, u64)], expected: &str) {
    assert_eq!(run(&mut Model::new(spec), calls), expected, "calls (ms) {calls:?}");
}

fn concurrency(limit: usize) -> WindowSpec {
    WindowSpec::Concurrency { limit }
}

fn at_completion(windows: Vec<WindowSpec>) -> ModelSpec {
    ModelSpec { counted: Counted::Completion, ..spec(windows) }
}

#[test]
fn concurrency_refuses_the_call_above_the_limit_until_one_has_ended() {
    let calls = [(0, 100), (10, 50), (20, 99), (49, 60), (50, 60), (100, 110)];
    check_calls(spec(vec![concurrency(2)]), &calls, "aarraa");
}

#[test]
fn slower_work_needs_more_places_for_the_same_rate() {
    // One call each 50 ms: 80 ms take two places, 400 ms would take eight.
    let fast = (0..10).map(|n| (n * 50, n * 50 + 80));
    let slow = (10..20).map(|n| (n * 50, n * 50 + 400));
    let calls: Vec<_> = fast.chain(slow).collect();
    check_calls(spec(vec![concurrency(3)]), &calls, "aaaaaaaaaaaaarrrrraa");
}

#[test]
fn a_refused_call_takes_no_place() {
    let calls = [(0, 10), (1, 1_000), (2, 1_000), (10, 20)];
    check_calls(spec(vec![concurrency(1)]), &calls, "arra");
}

#[test]
fn a_call_refused_by_a_rate_takes_no_place_either() {
    let calls = [(0, 5), (6, 1_000), (7, 1_000), (1_000, 1_010)];
    check_calls(spec(vec![rolling(1), concurrency(1)]), &calls, "arra");
}

#[test]
fn a_call_refused_by_concurrency_uses_no_rate() {
    let calls = [(0, 100), (10, 20), (100, 110)];
    check_calls(spec(vec![rolling(2), concurrency(1)]), &calls, "ara");
}

#[test]
fn the_most_calls_in_flight_are_remembered() {
    let mut model = Model::new(spec(vec![rolling(100)]));
    run(&mut model, &[(0, 10), (5, 20), (9, 30), (25, 26)]);
    assert_eq!((model.max_in_flight(), model.in_flight()), (3, 0));
}

#[test]
fn a_body_that_has_not_come_is_in_flight() {
    let mut model = Model::new(spec(vec![concurrency(1)]));
    assert_eq!(arrive(&mut model, 0), 'a');
    assert_eq!(arrive(&mut model, 60_000), 'r');
    model.release();
    assert_eq!(arrive(&mut model, 60_001), 'a');
}

#[test]
fn counted_at_completion_it_is_the_ends_that_must_be_apart() {
    // Even arrivals; the first three end together.
    let calls = [(0, 2_000), (700, 2_000), (1_400, 2_000), (2_100, 2_200), (3_000, 3_000)];
    check_calls(spec(vec![rolling(2)]), &calls, "aaaaa");
    check_calls(at_completion(vec![rolling(2)]), &calls, "aarra");
}

#[test]
fn counted_at_completion_the_order_is_that_of_the_ends() {
    check_calls(at_completion(vec![rolling(1)]), &[(0, 900), (10, 100)], "ra");
}

#[test]
fn concurrency_is_counted_from_the_headers_on_in_every_case() {
    let windows = vec![rolling(100), concurrency(1)];
    check_calls(at_completion(windows), &[(0, 100), (50, 150), (100, 200)], "ara");
}

#[test]
fn a_stop_catches_calls_that_were_on_their_way() {
    let stopping = ModelSpec { counted: Counted::Completion, ..suspending(0, SECOND, SECOND) };
    check_calls(stopping, &[(0, 500), (1, 400), (2, 1_399), (3, 1_400)], "srsr");
}

#[test]
fn counted_with_the_body_there_is_no_verdict_before() {
    let mut model = Model::new(ModelSpec { counted: Counted::Body, ..spec(vec![rolling(5)]) });
    assert_eq!(model.arrive(ms(0), 1), None);
    assert_eq!(letter(model.charge(ms(1), 3)), 'a');
    assert_eq!(letter(model.charge(ms(2), 3)), 'r');
    assert_eq!(letter(model.charge(ms(3), 2)), 'a');
}

fn pace(latency: u64, jitter: u64, stall: Option<(u64, u64)>) -> PaceSpec {
    let stall = stall.map(|(every, length)| Stall { every: ms(every), length: ms(length) });
    PaceSpec { latency: ms(latency), jitter: ms(jitter), stall }
}

#[test]
fn nothing_ends_within_a_stall_and_all_of_it_ends_with_it() {
    let mut pace = Pace::new(pace(100, 0, Some((20_000, 1_500))), 1);
    let ends = [(0, 100), (19_899, 19_999), (19_900, 21_500), (21_399, 21_500), (21_400, 21_500)];
    for (body, end) in ends {
        assert_eq!(pace.end_of(ms(body)), ms(end), "body at {body} ms");
    }
    assert_eq!(pace.end_of(ms(21_401)), ms(21_501));
    assert_eq!(pace.end_of(ms(40_000)), ms(41_500));
}

#[test]
fn the_first_stall_comes_after_its_interval() {
    let mut pace = Pace::new(pace(0, 0, Some((1_000, 500))), 1);
    assert_eq!(pace.end_of(ms(100)), ms(100));
    assert_eq!(pace.end_of(ms(1_100)), ms(1_500));
}

#[test]
fn jitter_is_repeatable_and_between_nothing_and_its_bound() {
    let ends = |seed| {
        let mut pace = Pace::new(pace(80, 20, None), seed);
        (0..1_000).map(|_| pace.end_of(ms(0))).collect::<Vec<_>>()
    };
    let first = ends(7);
    assert_eq!(first, ends(7));
    assert_ne!(first, ends(8));
    assert!(first.iter().all(|end| (ms(80)..=ms(100)).contains(end)));
    assert!(first.iter().any(|end| *end < ms(82)) && first.iter().any(|end| *end > ms(98)));
}
