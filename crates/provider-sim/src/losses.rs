//! Replies that get lost after the call was accepted.
//!
//! Promise: seeded, so that the same calls lose their replies again.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossSpec {
    /// Each so-many-th accepted call; at least 1.
    pub every: Option<u32>,
    /// From 0 to 1.
    pub probability: f64,
}

#[derive(Debug)]
pub struct Losses {
    spec: LossSpec,
    random: fastrand::Rng,
    accepted: u64,
}

impl Losses {
    pub fn new(spec: LossSpec, seed: u64) -> Self {
        Self { spec, random: fastrand::Rng::with_seed(seed), accepted: 0 }
    }

    pub fn reconfigure(&mut self, spec: LossSpec) {
        self.spec = spec;
    }

    /// Whether the reply to one more accepted call is lost.
    pub fn loses_next(&mut self) -> bool {
        self.accepted += 1;
        let turn = self.spec.every.is_some_and(|n| self.accepted.is_multiple_of(n.into()));
        let chance = self.spec.probability > 0.0 && self.random.f64() < self.spec.probability;
        turn || chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(spec: LossSpec, seed: u64) -> Vec<usize> {
        let mut losses = Losses::new(spec, seed);
        (1..=1_000).filter(|_| losses.loses_next()).collect()
    }

    #[test]
    fn every_third_is_lost_from_the_third_on() {
        let spec = LossSpec { every: Some(3), probability: 0.0 };
        assert_eq!(lost(spec, 1)[..3], [3, 6, 9]);
    }

    #[test]
    fn chance_is_repeatable_and_about_what_was_asked_for() {
        let spec = LossSpec { every: None, probability: 0.1 };
        let first = lost(spec, 7);
        assert_eq!(first, lost(spec, 7));
        assert_ne!(first, lost(spec, 8));
        assert!((60..=140).contains(&first.len()), "{} of 1000", first.len());
    }

    #[test]
    fn nothing_is_lost_unless_asked_for_and_everything_can_be() {
        assert!(lost(LossSpec { every: None, probability: 0.0 }, 1).is_empty());
        assert_eq!(lost(LossSpec { every: None, probability: 1.0 }, 1).len(), 1_000);
    }
}
