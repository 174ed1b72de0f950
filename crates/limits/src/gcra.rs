//! One rate: the generic cell rate algorithm in its virtual-scheduling form (ITU-T I.371, annex A).
//!
//! Promise: any half-open span of length `L` holds at most `burst + ⌊L / emission_interval⌋`
//! grants, whatever the arrivals. One number is kept, the theoretical arrival time (TAT) of the
//! next request that would conform exactly.
//!
//! Where it trips: a TAT further ahead than grants can have pushed it means that the clock stepped
//! back or a store came back with a foreign value. It is pulled back to "everything just used up",
//! the strictest state that can be legal, so a jump neither stalls the limit nor opens it.

use crate::units::Micros;

/// A rate as the policy writes it: `target` requests `per` span, `burst` at once from idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub target: u32,
    pub per: Micros,
    /// Grants possible at once from idle, the first included: at least 1.
    pub burst: u32,
}

/// The two constants of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    emission_interval: Micros,
    tolerance: Micros,
}

impl Rate {
    /// `T`: time one request costs. Rounded up, so the rate is never above the target. At least
    /// 1 µs; a target or burst of 0 counts as 1 (the policy refuses both).
    pub fn gcra(&self) -> Gcra {
        let emission_interval = Micros(self.per.0.div_ceil(u64::from(self.target.max(1))).max(1));
        let tolerance = emission_interval.times(u64::from(self.burst.max(1)) - 1);
        Gcra { emission_interval, tolerance }
    }
}

impl Gcra {
    /// A rate of one request per `emission_interval` (at least 1 µs) with a burst of one.
    pub fn spaced(emission_interval: Micros) -> Self {
        Self { emission_interval: emission_interval.max(Micros(1)), tolerance: Micros::ZERO }
    }

    /// The same with `left` of `whole` shares of the rate: the interval grows, rounded up, the
    /// tolerance stays. Call only with `left` ≥ 1.
    pub fn slowed(&self, left: u32, whole: u32) -> Self {
        let scaled = u128::from(self.emission_interval.0) * u128::from(whole);
        let interval = scaled.div_ceil(u128::from(left.max(1)));
        let emission_interval = Micros(u64::try_from(interval).unwrap_or(u64::MAX));
        Self { emission_interval, tolerance: self.tolerance }
    }

    pub fn emission_interval(&self) -> Micros {
        self.emission_interval
    }

    /// `T × (burst − 1)`.
    pub fn tolerance(&self) -> Micros {
        self.tolerance
    }

    /// The TAT as it may be used at `now`: never further ahead than `burst` grants can push it.
    pub fn legal(&self, tat: Micros, now: Micros) -> Micros {
        tat.min(now.plus(self.tolerance).plus(self.emission_interval))
    }

    /// How many requests conform at `now`, all at once.
    pub fn admissible(&self, tat: Micros, now: Micros) -> u64 {
        let limit = now.plus(self.tolerance);
        let tat = tat.max(now);
        if tat > limit { 0 } else { limit.minus(tat).0 / self.emission_interval.0 + 1 }
    }

    /// The TAT after `n` grants at `now`. Call only with `n` ≤ `admissible`.
    pub fn charge(&self, tat: Micros, now: Micros, n: u64) -> Micros {
        tat.max(now).plus(self.emission_interval.times(n))
    }

    /// Time from `now` until one request conforms; zero when one does.
    pub fn wait(&self, tat: Micros, now: Micros) -> Micros {
        tat.minus(self.tolerance).minus(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: u64 = 1_700_000_000_000_000;

    fn rate(target: u32, burst: u32) -> Gcra {
        Rate { target, per: Micros::SECOND, burst }.gcra()
    }

    /// Asks one at a time at the given instants (µs after T0) and lists which were granted.
    fn check(gcra: Gcra, at: &[u64]) -> Vec<bool> {
        let mut tat = Micros::ZERO;
        at.iter()
            .map(|at| {
                let now = Micros(T0 + at);
                let granted = gcra.admissible(tat, now) > 0;
                if granted {
                    tat = gcra.charge(tat, now, 1);
                }
                granted
            })
            .collect()
    }

    #[test]
    fn interval_is_rounded_up() {
        assert_eq!(rate(90, 1).emission_interval(), Micros(11_112));
        assert_eq!(rate(3, 1).emission_interval(), Micros(333_334));
    }

    #[test]
    fn burst_counts_the_first() {
        assert_eq!(check(rate(90, 1), &[0, 0]), [true, false]);
        assert_eq!(check(rate(90, 3), &[0, 0, 0, 0]), [true, true, true, false]);
    }

    #[test]
    fn next_grant_is_exactly_one_interval_later() {
        assert_eq!(check(rate(90, 1), &[0, 11_111, 11_112]), [true, false, true]);
    }

    #[test]
    fn idle_time_earns_no_more_than_burst() {
        let day = 86_400_000_000;
        assert_eq!(check(rate(90, 2), &[0, day, day, day]), [true, true, true, false]);
    }

    #[test]
    fn the_wait_that_is_told_is_the_wait_that_is_needed() {
        let gcra = rate(90, 5);
        let tat = gcra.charge(Micros::ZERO, Micros(T0), 5);
        let wait = gcra.wait(tat, Micros(T0));
        assert_eq!(wait, Micros(11_112));
        assert_eq!(gcra.admissible(tat, Micros(T0 + wait.0 - 1)), 0);
        assert_eq!(gcra.admissible(tat, Micros(T0 + wait.0)), 1);
    }

    #[test]
    fn many_at_once_are_charged_like_one_after_the_other() {
        let gcra = rate(90, 5);
        let now = Micros(T0);
        let one_by_one = (0..3).fold(Micros::ZERO, |tat, _| gcra.charge(tat, now, 1));
        assert_eq!(gcra.charge(Micros::ZERO, now, 3), one_by_one);
        assert_eq!(gcra.admissible(one_by_one, now), 2);
    }

    #[test]
    fn an_illegal_tat_is_pulled_back_to_just_used_up() {
        let gcra = rate(90, 5);
        let now = Micros(T0);
        let legal = gcra.legal(Micros(T0 + 3_600_000_000), now);
        assert_eq!(legal, gcra.charge(Micros::ZERO, now, 5));
        assert_eq!(gcra.legal(Micros(T0 + 5), now), Micros(T0 + 5), "a legal one is left alone");
    }

    #[test]
    fn a_part_of_the_rate_is_rounded_down_and_its_burst_is_no_larger() {
        let slowed = rate(90, 5).slowed(2, 3);
        assert_eq!(slowed.emission_interval(), Micros(16_668));
        assert_eq!(check(slowed, &[0; 4]), [true, true, true, false]);
        assert_eq!(rate(90, 5).slowed(4, 4), rate(90, 5));
    }

    #[test]
    fn absurd_numbers_saturate() {
        let gcra = Rate { target: 1, per: Micros(u64::MAX), burst: u32::MAX }.gcra();
        let tat = gcra.charge(Micros(u64::MAX), Micros(u64::MAX), 7);
        assert_eq!(tat, Micros(u64::MAX));
        assert_eq!(
            gcra.wait(tat, Micros::ZERO),
            Micros::ZERO,
            "a tolerance without bound never closes"
        );
    }
}
