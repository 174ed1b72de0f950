//! What the provider can see at most, and what that leaves for gateways that are cut off.
//!
//! A grant reaches the provider up to `path_jitter` later than another, so a window `W` at the
//! provider can hold all grants of a span `W + path_jitter`. GCRA bounds those by
//! `burst + ⌊span / emission_interval⌋`; with several rates the smallest bound holds.

use crate::{
    gcra::{Gcra, Rate},
    policy::Window,
    units::Micros,
};

/// The most arrivals that `rates` together can cause in a window of length `window`.
pub fn worst_case(rates: &[Rate], window: Micros, path_jitter: Micros) -> u64 {
    let span = window.plus(path_jitter);
    let bound = |rate: &Rate| {
        u64::from(rate.burst).saturating_add(span.0 / rate.gcra().emission_interval().0)
    };
    rates.iter().map(bound).min().unwrap_or(u64::MAX)
}

/// `burst + target × (window + path_jitter)`, rounded up: what a policy is judged by. At least the
/// [`worst_case`], which counts whole requests.
pub fn planned(rate: &Rate, window: &Window, path_jitter: Micros) -> u128 {
    let span = u128::from(window.per.plus(path_jitter).0);
    let flow = (u128::from(rate.target) * span).div_ceil(u128::from(rate.per.0.max(1)));
    u128::from(rate.burst) + flow
}

/// Does what is planned stay within the contract's window?
pub fn within(rate: &Rate, window: &Window, path_jitter: Micros) -> bool {
    planned(rate, window, path_jitter) <= u128::from(window.requests)
}

/// The highest target (per the rate's own span) that [`within`] accepts with the rate's burst.
pub fn highest_target(rate: &Rate, window: &Window, path_jitter: Micros) -> u64 {
    let span = u128::from(window.per.plus(path_jitter).0.max(1));
    let spare = u128::from(window.requests.saturating_sub(rate.burst));
    u64::try_from(spare * u128::from(rate.per.0) / span).unwrap_or(u64::MAX)
}

/// The share of the headroom that each of `gateways` may send without asking anyone, for ever:
/// whatever the decider grants at the same time, the contract holds.
///
/// With `k` = what a contract window has left over the worst case, divided by `gateways` and
/// rounded down, a gateway that spaces its requests by more than `span / k` puts at most `k` into
/// any span. `None` when some window leaves less than one request for each gateway.
pub fn headroom(
    rates: &[Rate],
    contract: &[Window],
    path_jitter: Micros,
    gateways: u32,
) -> Option<Gcra> {
    let mut interval = Micros(1);
    for window in contract {
        let worst = worst_case(rates, window.per, path_jitter);
        let share = u64::from(window.requests).checked_sub(worst)? / u64::from(gateways.max(1));
        let span = window.per.plus(path_jitter);
        interval = interval.max(Micros(span.0.checked_div(share)?.saturating_add(1)));
    }
    (!contract.is_empty()).then(|| Gcra::spaced(interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JITTER: Micros = Micros(20_000);
    const SECOND: Window = Window { requests: 100, per: Micros::SECOND };

    fn rate(target: u32, burst: u32) -> Rate {
        Rate { target, per: Micros::SECOND, burst }
    }

    /// Counts what a source that always sends as early as it may puts into a span.
    fn count_in_span(gcra: Gcra, span: Micros) -> u64 {
        let burst = gcra.tolerance().0 / gcra.emission_interval().0 + 1;
        let mut tat = gcra.charge(Micros::ZERO, Micros::ZERO, burst);
        let mut count = burst;
        loop {
            let next = gcra.wait(tat, Micros::ZERO);
            if next > span {
                return count;
            }
            count += 1;
            assert!(count < 10_000, "a source that never has to wait");
            tat = gcra.charge(tat, next, 1);
        }
    }

    #[test]
    fn the_worst_case_is_reached_and_not_exceeded() {
        for (target, burst) in [(90, 5), (90, 1), (80, 20), (7, 3)] {
            let rate = rate(target, burst);
            let span = Micros::SECOND.plus(JITTER);
            assert_eq!(
                count_in_span(rate.gcra(), span),
                worst_case(&[rate], Micros::SECOND, JITTER),
                "{target}/s, burst {burst}"
            );
        }
    }

    #[test]
    fn the_incidents_policy_is_within_and_its_neighbour_is_not() {
        assert!(within(&rate(90, 5), &SECOND, JITTER));
        assert_eq!(highest_target(&rate(90, 5), &SECOND, JITTER), 93);
        assert!(within(&rate(93, 5), &SECOND, JITTER));
        assert!(!within(&rate(94, 5), &SECOND, JITTER));
        assert!(!within(&rate(100, 1), &SECOND, Micros::ZERO));
    }

    #[test]
    fn headroom_and_worst_case_together_keep_the_contract() {
        for gateways in 1..=4 {
            let rates = [rate(90, 5)];
            let share = headroom(&rates, &[SECOND], JITTER, gateways).unwrap();
            let span = Micros::SECOND.plus(JITTER);
            let total = worst_case(&rates, Micros::SECOND, JITTER)
                + u64::from(gateways) * count_in_span(share, span);
            assert!(total <= 100, "{gateways} gateways: {total}");
        }
    }

    #[test]
    fn headroom_is_nothing_when_a_window_has_less_than_one_each() {
        assert_eq!(headroom(&[rate(90, 5)], &[SECOND], JITTER, 5), None);
        assert_eq!(headroom(&[rate(100, 5)], &[SECOND], JITTER, 1), None, "already over");
        let minute = Window { requests: 5_000, per: Micros::from_secs(60) };
        assert_eq!(headroom(&[rate(90, 5)], &[SECOND, minute], JITTER, 1), None);
    }
}
