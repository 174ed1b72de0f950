//! The most that any one window held.
//!
//! Promise: exact, over half-open windows laid anywhere, and independent of the model that
//! answers the calls: what the report says was not computed by what refused. Windows longer
//! than a second are exact to a millionth of their length, which bounds the memory to a million
//! instants; shorter ones keep every instant of the last window.

use std::collections::VecDeque;
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
const LONG_WINDOW_PARTS: u64 = 1_000_000;

#[derive(Debug, Clone)]
pub struct RollingMax {
    window_ns: u64,
    /// Instants closer than this are one.
    grain_ns: u64,
    /// Instants within the window that ends with the last addition, oldest first, and units.
    last_window: VecDeque<(u64, u64)>,
    held: u64,
    max: u64,
}

impl RollingMax {
    pub fn new(window: Duration) -> Self {
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let long = window_ns > SECOND_NS;
        Self {
            window_ns,
            grain_ns: if long { window_ns / LONG_WINDOW_PARTS } else { 1 },
            last_window: VecDeque::new(),
            held: 0,
            max: 0,
        }
    }

    /// Adds `units` at `at_ns`, which never steps back.
    ///
    /// The fullest window can always be moved until it ends with an addition, so it is enough
    /// to look at the windows that do.
    pub fn add(&mut self, at_ns: u64, units: u64) {
        while let Some(&(oldest, gone)) = self.last_window.front() {
            if at_ns.saturating_sub(oldest) < self.window_ns {
                break;
            }
            self.held -= gone;
            self.last_window.pop_front();
        }
        match self.last_window.back_mut() {
            Some((last, more)) if at_ns.saturating_sub(*last) < self.grain_ns => *more += units,
            _ => self.last_window.push_back((at_ns, units)),
        }
        self.held += units;
        self.max = self.max.max(self.held);
    }

    pub fn max(&self) -> u64 {
        self.max
    }
}

impl Default for RollingMax {
    fn default() -> Self {
        Self::new(Duration::from_nanos(SECOND_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arrivals_ms: &[u64], expected: u64) {
        let mut rolling = RollingMax::default();
        for at in arrivals_ms {
            rolling.add(at * 1_000_000, 1);
        }
        assert_eq!(rolling.max(), expected, "arrivals at {arrivals_ms:?} ms");
    }

    #[test]
    fn nothing_arrived_is_zero() {
        check(&[], 0);
    }

    #[test]
    fn one_second_apart_is_two_windows() {
        check(&[0, 1000], 1);
        check(&[0, 999], 2);
    }

    #[test]
    fn finds_the_second_that_straddles_a_boundary() {
        check(&[0, 900, 950, 1000, 1050, 1899, 1951, 5000], 5);
    }

    #[test]
    fn remembers_the_fullest_second_after_quiet() {
        check(&[0, 1, 2, 10_000, 20_000], 3);
    }

    #[test]
    fn other_windows_and_units_count_as_well() {
        let mut tenth = RollingMax::new(Duration::from_millis(100));
        for (at_ms, units) in [(0, 3), (99, 4), (100, 5)] {
            tenth.add(at_ms * 1_000_000, units);
        }
        assert_eq!(tenth.max(), 9);
    }

    #[test]
    fn a_long_window_keeps_no_more_than_a_million_instants() {
        let mut minute = RollingMax::new(Duration::from_secs(60));
        // One each 10 us; the grain is 60 us.
        for n in 0..6_600_000_u64 {
            minute.add(n * 10_000, 1);
        }
        assert!(minute.last_window.len() <= 1_000_001, "{}", minute.last_window.len());
        assert!(minute.max().abs_diff(6_000_000) <= 6, "{}", minute.max());
    }

    #[test]
    fn agrees_with_counting_every_second_anew() {
        // A fixed linear congruence: the same arrivals in every run.
        let mut state = 12_345_u64;
        let mut at = 0;
        let arrivals: Vec<u64> = (0..2_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                at += (state >> 33) % 23;
                at
            })
            .collect();
        let fullest = arrivals
            .iter()
            .map(|&start| {
                let inside = |at: &&u64| **at >= start && **at < start + 1000;
                arrivals.iter().filter(inside).count()
            })
            .max();
        check(&arrivals, fullest.unwrap_or(0) as u64);
    }
}
