//! Who judges: counts what arrives.

use super::Instant;

#[derive(Default)]
pub struct Provider {
    arrivals: Vec<Instant>,
}

impl Provider {
    pub fn receives(&mut self, at: Instant) {
        self.arrivals.push(at);
    }

    /// The most arrivals in any half-open window of that length.
    pub fn most_in(&mut self, window: Instant) -> usize {
        self.arrivals.sort_unstable();
        let (mut first, mut most) = (0, 0);
        for (last, at) in self.arrivals.iter().enumerate() {
            while self.arrivals[first] + window <= *at {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        most
    }
}

#[test]
fn the_most_in_a_window() {
    let mut provider = Provider::default();
    for at in [0, 999, 1_000, 1_001, 5_000] {
        provider.receives(at);
    }
    assert_eq!(provider.most_in(1_000), 3);
    assert_eq!(provider.most_in(1), 1);
    assert_eq!(Provider::default().most_in(1), 0);
}
