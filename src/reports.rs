//! Reports to the decider that a provider throttled us.
//!
//! Promise: a report is sent until it is answered or its pause is over, also when the caller that
//! got the 429 has gone. Bounded: the oldest gives way, for the newest pause is the one that counts
//! at this gateway anyway.

use std::collections::VecDeque;

use limits::Micros;

const REPORTS_MAX: usize = 64;
const RETRY_MIN: Micros = Micros::from_millis(100);
const RETRY_MAX: Micros = Micros::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Place of the limit in the policy.
    pub limit: usize,
    /// End of the pause, on the gateway's monotonic clock.
    pub until: Micros,
    /// Makes sending it again harmless.
    pub id: String,
    attempts: u32,
    next_at: Micros,
    in_flight: bool,
}

#[derive(Debug, Default)]
pub struct Reports(VecDeque<Report>);

impl Reports {
    /// True if another one had to give way.
    pub fn push(&mut self, limit: usize, until: Micros, id: String) -> bool {
        let full = self.0.len() >= REPORTS_MAX;
        if full {
            self.0.pop_front();
        }
        let next_at = Micros::ZERO;
        self.0.push_back(Report { limit, until, id, attempts: 0, next_at, in_flight: false });
        full
    }

    /// The next report to send at `now`; it counts as on its way.
    pub fn due(&mut self, now: Micros) -> Option<Report> {
        self.0.retain(|report| report.in_flight || now < report.until);
        let report = self.0.iter_mut().find(|report| !report.in_flight && report.next_at <= now)?;
        report.in_flight = true;
        Some(report.clone())
    }

    /// The report's call is over.
    pub fn answered(&mut self, id: &str, delivered: bool, now: Micros) {
        if delivered {
            self.0.retain(|report| report.id != id);
        } else if let Some(report) = self.0.iter_mut().find(|report| report.id == id) {
            let pause = RETRY_MIN.times(1 << report.attempts.min(10)).min(RETRY_MAX);
            report.attempts = report.attempts.saturating_add(1);
            report.next_at = now.plus(pause);
            report.in_flight = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_000_000);

    fn until(ms: u64) -> Micros {
        NOW.plus(Micros::from_millis(ms))
    }

    #[test]
    fn a_report_is_sent_again_until_it_is_answered() {
        let mut reports = Reports::default();
        reports.push(0, until(10_000), "a".into());
        assert!(reports.due(NOW).is_some());
        assert_eq!(reports.due(NOW), None, "on its way");
        reports.answered("a", false, NOW);
        assert_eq!(reports.due(until(99)), None, "not at once");
        assert!(reports.due(until(100)).is_some());
        reports.answered("a", true, until(100));
        assert_eq!(reports.due(until(9_000)), None);
    }

    #[test]
    fn a_report_ends_with_its_pause() {
        let mut reports = Reports::default();
        reports.push(0, until(1_000), "a".into());
        assert_eq!(reports.due(until(1_000)), None);
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut reports = Reports::default();
        for n in 0..REPORTS_MAX {
            assert!(!reports.push(0, until(1_000), n.to_string()));
        }
        assert!(reports.push(0, until(1_000), "last".into()));
        assert_eq!(reports.due(NOW).map(|report| report.id).as_deref(), Some("1"));
    }
}
