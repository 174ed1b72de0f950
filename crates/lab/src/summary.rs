//! What a run came to, per stream.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sender::{Answer, Failure, Run, Sent};

#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// All that left, whatever became of them.
    pub sent: usize,
    /// Answered with a status 200–299.
    pub passed: usize,
    /// Answered with 429.
    pub refused: usize,
    /// Answered with anything else, by status.
    pub other_statuses: BTreeMap<u16, usize>,
    pub timed_out: usize,
    pub broken: usize,
    /// Given up because too many were in flight: a fault of the sender, not of what it tests.
    pub not_sent: usize,
    /// Sorted. Time of the passed without the provider's own part.
    pub added: Vec<Duration>,
    /// Sorted. Time to the answer of the refused.
    pub refused_took: Vec<Duration>,
    /// Sorted. How long the refused were told to wait.
    pub retry_after: Vec<Duration>,
    /// Why the refused were, as the gateway said.
    pub reasons: BTreeMap<String, usize>,
    pub latest: Duration,
}

impl Summary {
    pub fn of_stream(run: &Run, stream: usize) -> Self {
        Self::of(run.sent.iter().filter(|sent| sent.stream == stream))
    }

    pub fn of<'a>(sent: impl Iterator<Item = &'a Sent>) -> Self {
        let mut summary = Self::default();
        for one in sent {
            summary.add(one);
        }
        for times in [&mut summary.added, &mut summary.refused_took, &mut summary.retry_after] {
            times.sort_unstable();
        }
        summary
    }

    fn add(&mut self, one: &Sent) {
        self.latest = self.latest.max(one.late);
        if one.outcome.as_ref().err() == Some(&Failure::NotSent) {
            self.not_sent += 1;
            return;
        }
        self.sent += 1;
        match &one.outcome {
            Err(Failure::TimedOut) => self.timed_out += 1,
            Err(_) => self.broken += 1,
            Ok(answer) => self.add_answer(one, answer),
        }
    }

    fn add_answer(&mut self, one: &Sent, answer: &Answer) {
        if answer.passed() {
            self.passed += 1;
            self.added.push(one.took.saturating_sub(answer.at_provider()));
        } else if answer.status == 429 {
            self.refused += 1;
            self.refused_took.push(one.took);
            self.retry_after.extend(answer.retry_after());
            let reason = answer.reason().unwrap_or_else(|| "not said".to_owned());
            *self.reasons.entry(reason).or_default() += 1;
        } else {
            *self.other_statuses.entry(answer.status).or_default() += 1;
        }
    }

    /// Everything that is neither a success nor an honest refusal.
    pub fn failed(&self) -> usize {
        self.timed_out + self.broken + self.other_statuses.values().sum::<usize>()
    }
}

/// The smallest value that at least `percent` of the sorted values do not exceed.
pub fn percentile(sorted: &[Duration], percent: f64) -> Option<Duration> {
    assert!((0.0..=100.0).contains(&percent), "percent = {percent}: 0 to 100");
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let values: Vec<_> = (1..=10).map(Duration::from_millis).collect();
        let check = |percent, ms| {
            assert_eq!(percentile(&values, percent), Some(Duration::from_millis(ms)));
        };
        check(0.0, 1);
        check(50.0, 5);
        check(51.0, 6);
        check(99.0, 10);
        check(100.0, 10);
        assert_eq!(percentile(&[], 50.0), None);
    }
}
