//! The most arrivals that any one second held.
//!
//! Promise: exact, over half-open seconds laid anywhere, and independent of the model that
//! answers the calls: what the report says was not computed by what refused. Memory is the
//! arrivals of the last second.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Default)]
pub struct RollingMax {
    /// Instants within the second that ends with the last arrival, oldest first.
    last_second: VecDeque<u64>,
    max: usize,
}

impl RollingMax {
    /// Counts an arrival; `at_ns` never steps back.
    ///
    /// The fullest second can always be moved until it ends with an arrival, so it is enough
    /// to look at the seconds that do.
    pub fn add(&mut self, at_ns: u64) {
        while let Some(&oldest) = self.last_second.front() {
            if at_ns.saturating_sub(oldest) < SECOND_NS {
                break;
            }
            self.last_second.pop_front();
        }
        self.last_second.push_back(at_ns);
        self.max = self.max.max(self.last_second.len());
    }

    pub fn max(&self) -> usize {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arrivals_ms: &[u64], expected: usize) {
        let mut rolling = RollingMax::default();
        for at in arrivals_ms {
            rolling.add(at * 1_000_000);
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
        check(&arrivals, fullest.unwrap_or(0));
    }
}
