//! What came of a run.

use std::time::Duration;

use super::ledger::Ledger;
use crate::judge::{Arrival, Report, WindowReport};
use crate::summary::percentile;

#[derive(Debug, Clone)]
pub struct Outcome {
    /// Answered 429 within the run's length.
    pub refused: u64,
    /// Answered 429 after it, while login codes were still waited for.
    pub refused_later: u64,
    pub max_in_any_1s: u64,
    pub suspended_after_s: Option<f64>,
    /// The model's quotas, and how full they were.
    pub windows: Vec<WindowReport>,
    /// Accepted by the provider, by class.
    pub otp_sent: u64,
    pub marketing_sent: u64,
    /// In the order in which they were made.
    pub otp_waits: Vec<OtpWait>,
    pub tenths: Vec<Tenth>,
    pub accounts: Accounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtpWait {
    pub made: Duration,
    /// Until the provider accepted it, or the run ended.
    pub wait: Duration,
    pub accepted: bool,
}

/// What arrived at the provider in a tenth of a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tenth {
    pub accepted: u32,
    pub refused: u32,
    /// The most that any second that ends in this tenth held.
    pub in_last_second: u32,
}

/// Nothing lost, nothing twice: what was made is accepted once or still in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounts {
    pub made: u64,
    pub acknowledged: u64,
    /// Not acknowledged when the run ended.
    pub queued: u64,
    /// Acceptances that the provider counts.
    pub accepted: u64,
    pub accepted_twice: u64,
}

impl Accounts {
    pub fn balance(&self) -> bool {
        self.made == self.acknowledged + self.queued
            && self.accepted == self.acknowledged
            && self.accepted_twice == 0
    }
}

impl Outcome {
    /// `report` is of the moment when the run's length was over, `finally` of when all had ended.
    pub(super) fn of(
        lasting: Duration,
        ledger: &Ledger,
        report: Report,
        finally: &Report,
        arrivals: &[Arrival],
        queued: usize,
    ) -> Self {
        let sent = |class| report.by_class.get(class).map_or(0, |of| of.accepted);
        Self {
            refused: report.refused,
            refused_later: finally.refused - report.refused,
            max_in_any_1s: report.max_in_any_1s,
            suspended_after_s: report.suspended_after_s,
            otp_sent: sent("otp"),
            marketing_sent: sent("marketing"),
            windows: report.windows,
            otp_waits: ledger.otps(),
            tenths: tenths(lasting, arrivals),
            accounts: Accounts {
                made: ledger.made_in_all(),
                acknowledged: ledger.acknowledged_in_all(),
                queued: queued as u64,
                accepted: finally.accepted,
                accepted_twice: finally.accepted_twice,
            },
        }
    }

    pub fn otp_wait(&self, percent: f64) -> Option<Duration> {
        let mut waits: Vec<Duration> = self.otp_waits.iter().map(|otp| otp.wait).collect();
        waits.sort_unstable();
        percentile(&waits, percent)
    }
}

/// `arrivals` are in order of time.
fn tenths(lasting: Duration, arrivals: &[Arrival]) -> Vec<Tenth> {
    const SECOND_US: u64 = 1_000_000;
    let length = lasting.as_millis().div_ceil(100) as usize;
    let mut tenths = vec![Tenth::default(); length];
    let mut oldest = 0;
    for (index, arrival) in arrivals.iter().enumerate() {
        while arrivals[oldest].at_us + SECOND_US <= arrival.at_us {
            oldest += 1;
        }
        let Some(tenth) = tenths.get_mut((arrival.at_us / 100_000) as usize) else {
            break;
        };
        let accepted = (200..300).contains(&arrival.status);
        *(if accepted { &mut tenth.accepted } else { &mut tenth.refused }) += 1;
        tenth.in_last_second = tenth.in_last_second.max((index + 1 - oldest) as u32);
    }
    // A tenth in which nothing arrived still has the arrivals of the second before its start.
    for (at, tenth) in tenths.iter_mut().enumerate().filter(|(_, t)| t.in_last_second == 0) {
        let began = at as u64 * 100_000;
        let within =
            |arrival: &&Arrival| arrival.at_us < began && arrival.at_us + SECOND_US > began;
        tenth.in_last_second = arrivals.iter().filter(within).count() as u32;
    }
    tenths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at_ms: u64, status: u16) -> Arrival {
        Arrival { at_us: at_ms * 1_000, class: "otp".to_owned(), status }
    }

    #[test]
    fn a_second_is_counted_back_from_each_arrival() {
        let arrivals =
            [arrival(50, 200), arrival(950, 429), arrival(1_049, 200), arrival(1_050, 200)];
        let tenths = tenths(Duration::from_millis(1_300), &arrivals);
        let counted: Vec<_> =
            tenths.iter().map(|t| (t.accepted, t.refused, t.in_last_second)).collect();
        assert_eq!(counted[0], (1, 0, 1));
        assert_eq!(counted[1], (0, 0, 1));
        assert_eq!(counted[9], (0, 1, 2));
        assert_eq!(counted[10], (2, 0, 3));
        assert_eq!(counted[12], (0, 0, 3));
    }

    #[test]
    fn accounts_balance_when_every_message_is_in_one_place() {
        let fine = Accounts { made: 5, acknowledged: 3, queued: 2, accepted: 3, accepted_twice: 0 };
        assert!(fine.balance());
        assert!(!Accounts { queued: 1, ..fine }.balance());
        assert!(!Accounts { accepted: 4, ..fine }.balance());
        assert!(!Accounts { accepted_twice: 1, ..fine }.balance());
    }
}
