//! Arrivals per 100 ms, by class and by what became of them.
//!
//! Promise: sums over classes are the arrivals, at every moment: an arrival is in one cell, and
//! moves to another when its class or its outcome is known. Bounded to the first hour.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Outcome;

pub const BUCKET_MS: u64 = 100;
/// One hour; the 65 classes then need 40 MB at most.
pub const MAX_BUCKETS: usize = 36_000;

#[derive(Debug, Default)]
pub struct Timeline {
    /// By class, then by instant.
    classes: Vec<Vec<Bucket>>,
    truncated: bool,
}

/// Arrivals by [`Outcome`].
type Bucket = [u32; 4];

#[derive(Debug, Default, Serialize)]
pub struct Series {
    pub arrivals: Vec<u32>,
    pub accepted: Vec<u32>,
    pub refused: Vec<u32>,
}

#[derive(Debug, Serialize)]
pub struct TimelineView {
    pub bucket_ms: u64,
    /// Index n: from `n * bucket_ms` on, since the start or the last reset.
    pub arrivals_per_100ms: Series,
    pub by_class: BTreeMap<String, Series>,
    /// The first hour only.
    pub truncated: bool,
}

impl Timeline {
    pub fn add(&mut self, at_ns: u64, class: u16, outcome: Outcome) {
        match self.bucket(at_ns, class) {
            Some(bucket) => bucket[outcome as usize] += 1,
            None => self.truncated = true,
        }
    }

    pub fn take_back(&mut self, at_ns: u64, class: u16, outcome: Outcome) {
        if let Some(bucket) = self.bucket(at_ns, class) {
            bucket[outcome as usize] = bucket[outcome as usize].saturating_sub(1);
        }
    }

    pub fn view<'a>(&self, names: impl Iterator<Item = &'a str>) -> TimelineView {
        let length = self.classes.iter().map(Vec::len).max().unwrap_or(0);
        let mut total = Series::zeros(length);
        let mut by_class = BTreeMap::new();
        for (buckets, name) in self.classes.iter().zip(names) {
            let mut series = Series::zeros(length);
            series.add(buckets);
            total.add(buckets);
            // Cells empty again once their arrivals had a class are no class of their own.
            if series.arrivals.iter().any(|n| *n > 0) {
                by_class.insert(name.to_owned(), series);
            }
        }
        TimelineView {
            bucket_ms: BUCKET_MS,
            arrivals_per_100ms: total,
            by_class,
            truncated: self.truncated,
        }
    }

    fn bucket(&mut self, at_ns: u64, class: u16) -> Option<&mut Bucket> {
        let at = usize::try_from(at_ns / (BUCKET_MS * 1_000_000)).ok()?;
        if at >= MAX_BUCKETS {
            return None;
        }
        let class = usize::from(class);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        let buckets = &mut self.classes[class];
        if buckets.len() <= at {
            buckets.resize(at + 1, Bucket::default());
        }
        Some(&mut buckets[at])
    }
}

impl Series {
    fn zeros(length: usize) -> Self {
        Self { arrivals: vec![0; length], accepted: vec![0; length], refused: vec![0; length] }
    }

    fn add(&mut self, buckets: &[Bucket]) {
        for (at, bucket) in buckets.iter().enumerate() {
            self.arrivals[at] += bucket.iter().sum::<u32>();
            self.accepted[at] += bucket[Outcome::Accepted as usize];
            self.refused[at] += bucket[Outcome::Refused as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_arrival_moves_to_its_class_and_outcome() {
        let mut timeline = Timeline::default();
        timeline.add(50 * MS, 0, Outcome::Pending);
        timeline.add(250 * MS, 0, Outcome::Refused);
        timeline.take_back(50 * MS, 0, Outcome::Pending);
        timeline.add(50 * MS, 1, Outcome::Accepted);
        let view = timeline.view(["unknown", "otp"].into_iter());
        assert_eq!(view.arrivals_per_100ms.arrivals, [1, 0, 1]);
        assert_eq!(view.arrivals_per_100ms.refused, [0, 0, 1]);
        assert_eq!(view.by_class["otp"].accepted, [1, 0, 0]);
        assert_eq!(view.by_class["unknown"].arrivals, [0, 0, 1]);
    }

    #[test]
    fn buckets_are_half_open() {
        let mut timeline = Timeline::default();
        for at in [0, 100 * MS - 1, 100 * MS] {
            timeline.add(at, 0, Outcome::Accepted);
        }
        assert_eq!(timeline.view(["x"].into_iter()).arrivals_per_100ms.accepted, [2, 1]);
    }

    #[test]
    fn what_comes_after_the_first_hour_is_said_to_be_missing() {
        let mut timeline = Timeline::default();
        timeline.add(3_600_000 * MS - 1, 0, Outcome::Accepted);
        assert!(!timeline.view(["x"].into_iter()).truncated);
        timeline.add(3_600_000 * MS, 0, Outcome::Accepted);
        let view = timeline.view(["x"].into_iter());
        assert!(view.truncated);
        assert_eq!(view.arrivals_per_100ms.arrivals.len(), MAX_BUCKETS);
    }
}
