//! The time that a refusal could honestly name.

use super::*;

/// After one call of one unit at each instant (ms), one of `units` is told to wait.
fn check_wait(window: WindowSpec, before: &[u64], now: u64, units: u32, expected_us: u64) {
    let mut model = Model::new(spec(vec![window]));
    for &at in before {
        assert_eq!(arrive(&mut model, at), 'a', "at {at} ms");
    }
    let Some(Verdict::Refuse { wait }) = model.arrive(ms(now), units) else {
        panic!("nothing refused at {now} ms");
    };
    assert_eq!(wait, Duration::from_micros(expected_us));
    let then = ms(now) + wait;
    let early = then - Duration::from_nanos(1);
    assert!(matches!(model.arrive(early, units), Some(Verdict::Refuse { .. })), "early");
    assert_eq!(model.arrive(then, units), Some(Verdict::Accept), "faithful");
}

#[test]
fn rolling_says_when_enough_has_left() {
    check_wait(rolling(3), &[0, 100, 200], 300, 1, 700_000);
    check_wait(rolling(3), &[0, 100, 200], 300, 2, 800_000);
}

#[test]
fn fixed_says_when_its_window_turns_or_jumps() {
    check_wait(fixed(1, ms(370)), &[400], 500, 1, 870_000);
    let jump = Some(Jump { every: ms(1_500), by: ms(200) });
    let jumping = WindowSpec::Fixed { limit: 1, window: SECOND, phase: ms(0), jump };
    check_wait(jumping, &[1_100], 1_200, 1, 300_000);
}

#[test]
fn leaky_says_when_enough_has_drained() {
    let leaky = WindowSpec::Leaky { limit: 100, window: SECOND, capacity: 2 };
    check_wait(leaky.clone(), &[0, 0], 4, 1, 6_000);
    check_wait(leaky, &[0, 0], 4, 2, 16_000);
}

#[test]
fn a_wait_of_parts_of_a_nanosecond_is_rounded_up() {
    let mut model =
        Model::new(spec(vec![WindowSpec::Leaky { limit: 3, window: SECOND, capacity: 1 }]));
    assert_eq!(arrive(&mut model, 0), 'a');
    let wait = Duration::from_nanos(333_333_334);
    assert_eq!(model.arrive(ms(0), 1), Some(Verdict::Refuse { wait }));
}

#[test]
fn concurrency_says_when_the_next_call_ends() {
    let mut model = Model::new(spec(vec![WindowSpec::Concurrency { limit: 2 }]));
    for (id, end) in [(1, 90), (2, 70)] {
        assert_eq!(arrive(&mut model, 0), 'a');
        model.hold(id, ms(end), None);
    }
    assert_eq!(model.arrive(ms(10), 1), Some(Verdict::Refuse { wait: ms(60) }));
}

#[test]
fn of_several_windows_the_longest_wait_is_said() {
    let tenth = WindowSpec::Rolling { limit: 1, window: ms(100) };
    let mut model = Model::new(spec(vec![tenth, rolling(1)]));
    assert_eq!(arrive(&mut model, 0), 'a');
    assert_eq!(model.arrive(ms(10), 1), Some(Verdict::Refuse { wait: ms(990) }));
}
