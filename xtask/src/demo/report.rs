//! What the demo found, as it is written to `target/demo/report.json`.

use std::time::Duration;

use anyhow::{Result, bail};
use lab::{CONTRACT_PER_S, Design, Load, Outcome};
use serde::Serialize;

use super::{Done, PROVIDERS};

#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub load: Load,
    pub lasting: Duration,
    pub repetitions: u64,
    pub jitter: Duration,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub load: &'static str,
    pub seconds: u64,
    pub jitter_ms: u64,
    /// How the figures of `runs` are made from those of `repetitions`.
    pub shown: String,
    pub contract_per_s: u32,
    /// One per design and provider.
    pub runs: Vec<Run>,
    /// Every single run.
    pub repetitions: Vec<Run>,
    /// Of Weir's: not each message was accepted once or is still in the queue.
    pub weir_lost_or_doubled: u64,
    /// Of Weir's, after the run's length.
    pub weir_refused_later: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Run {
    pub design: &'static str,
    pub provider: &'static str,
    pub refused_429: u64,
    pub max_in_any_1s: u64,
    /// From the moment a login code was made until the provider accepted it.
    pub otp_p50_ms: f64,
    pub otp_p99_ms: f64,
    /// Accepted by the provider.
    pub otp_sent: u64,
    pub marketing_sent: u64,
    pub suspended_after_s: Option<f64>,
}

impl Report {
    pub fn of(setting: &Setting, done: &[Done]) -> Self {
        let repetitions: Vec<Run> = done.iter().map(Run::of).collect();
        let designs = Design::ALL.into_iter().filter(|d| done.iter().any(|one| one.design == *d));
        let pairs = designs.flat_map(|d| PROVIDERS.map(|(provider, _)| (d.name(), provider)));
        let runs = pairs.filter_map(|pair| {
            let same = repetitions.iter().filter(|run| (run.design, run.provider) == pair);
            same.cloned().reduce(Run::worse)
        });
        let weir = || done.iter().filter(|one| one.design == Design::Weir).map(|one| &one.outcome);
        Self {
            load: setting.load.name(),
            seconds: setting.lasting.as_secs(),
            jitter_ms: setting.jitter.as_millis() as u64,
            shown: match setting.repetitions {
                1 => "each figure is that of one run".to_owned(),
                several => format!("each figure is the worst of {several} runs"),
            },
            contract_per_s: CONTRACT_PER_S,
            runs: runs.collect(),
            repetitions,
            weir_lost_or_doubled: weir().filter(|of| !of.accounts.balance()).count() as u64,
            weir_refused_later: weir().map(|of| of.refused_later).sum(),
        }
    }

    /// In plain words; an error unless Weir kept the contract wherever it ran.
    pub fn verdict(&self) -> Result<String> {
        let weir = || self.runs.iter().filter(|run| run.design == Design::Weir.name());
        let mut wrong = Vec::new();
        for run in weir() {
            let Run { provider, refused_429, max_in_any_1s, .. } = run;
            if *refused_429 > 0 {
                wrong.push(format!(
                    "the {provider} provider refused {refused_429} of Weir's requests"
                ));
            }
            if *max_in_any_1s > u64::from(self.contract_per_s) {
                wrong.push(format!("the {provider} provider saw {max_in_any_1s} in one second"));
            }
        }
        if self.weir_lost_or_doubled > 0 {
            wrong.push(format!("{} runs lost or doubled messages", self.weir_lost_or_doubled));
        }
        if self.weir_refused_later > 0 {
            let later = self.weir_refused_later;
            wrong.push(format!("{later} of Weir's requests were refused after the run's length"));
        }
        if !wrong.is_empty() {
            bail!("Weir did not keep the contract: {}", wrong.join("; "));
        }
        let Some(slowest) = weir().map(|run| run.otp_p99_ms).reduce(f64::max) else {
            return Ok("Weir was not among the designs.".to_owned());
        };
        let most = weir().map(|run| run.max_in_any_1s).max().unwrap_or(0);
        let others = self.others_words();
        Ok(format!(
            "{others}Weir kept the contract: at most {most} in any second, nothing refused, nothing lost \
             or sent twice;\n99 of 100 login codes were through within {slowest:.0} ms."
        ))
    }

    fn others_words(&self) -> String {
        let others = || self.runs.iter().filter(|run| run.design != Design::Weir.name());
        let Some(worst) = others().max_by_key(|run| run.refused_429).filter(|r| r.refused_429 > 0)
        else {
            return String::new();
        };
        let suspended = match others().any(|run| run.suspended_after_s.is_some()) {
            true => " and got the account suspended",
            false => "",
        };
        format!(
            "The worst of the others ({}) was refused {} times in {} s{suspended}.\n",
            worst.design, worst.refused_429, self.seconds
        )
    }
}

impl Run {
    pub fn of(done: &Done) -> Self {
        let Done { design, provider, outcome } = done;
        Self {
            design: design.name(),
            provider,
            refused_429: outcome.refused,
            max_in_any_1s: outcome.max_in_any_1s,
            otp_p50_ms: wait_ms(outcome, 50.0),
            otp_p99_ms: wait_ms(outcome, 99.0),
            otp_sent: outcome.otp_sent,
            marketing_sent: outcome.marketing_sent,
            suspended_after_s: outcome.suspended_after_s,
        }
    }

    /// Of every figure the worse one.
    fn worse(self, other: Self) -> Self {
        let suspended = [self.suspended_after_s, other.suspended_after_s];
        Self {
            refused_429: self.refused_429.max(other.refused_429),
            max_in_any_1s: self.max_in_any_1s.max(other.max_in_any_1s),
            otp_p50_ms: self.otp_p50_ms.max(other.otp_p50_ms),
            otp_p99_ms: self.otp_p99_ms.max(other.otp_p99_ms),
            otp_sent: self.otp_sent.min(other.otp_sent),
            marketing_sent: self.marketing_sent.min(other.marketing_sent),
            suspended_after_s: suspended.into_iter().flatten().reduce(f64::min),
            ..self
        }
    }
}

/// To a tenth of a millisecond.
fn wait_ms(outcome: &Outcome, percent: f64) -> f64 {
    let wait = outcome.otp_wait(percent).unwrap_or_default();
    (wait.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::super::fixture::done;
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn report(done: &[Done]) -> Report {
        let setting =
            Setting { load: Load::LateBurst, lasting: 5 * S, repetitions: 2, jitter: S / 50 };
        Report::of(&setting, done)
    }

    fn weir() -> Vec<Done> {
        vec![done(Design::Weir, "rolling", 0), done(Design::Weir, "rolling", 0)]
    }

    #[test]
    fn the_worse_figure_of_all_runs_is_shown() {
        let mut both = weir();
        both[1].outcome.refused = 3;
        both[1].outcome.otp_sent = 7;
        both[0].outcome.suspended_after_s = Some(2.0);
        let report = report(&both);
        assert_eq!((report.runs.len(), report.repetitions.len()), (1, 2));
        let run = &report.runs[0];
        assert_eq!((run.refused_429, run.otp_sent, run.otp_p99_ms), (3, 7, 10.0));
        assert_eq!(run.suspended_after_s, Some(2.0));
    }

    #[test]
    fn the_verdict_fails_on_each_way_to_break_the_promise() {
        let breaks: [fn(&mut Outcome); 5] = [
            |of| of.refused = 1,
            |of| of.refused_later = 1,
            |of| of.max_in_any_1s = 101,
            |of| of.accounts.queued = 0,
            |of| of.accounts.accepted_twice = 1,
        ];
        assert!(report(&weir()).verdict().is_ok());
        for one in breaks {
            let mut runs = weir();
            one(&mut runs[1].outcome);
            assert!(report(&runs).verdict().is_err());
        }
    }

    #[test]
    fn what_others_do_is_told_and_does_not_fail() -> Result<()> {
        let mut runs = weir();
        runs.push(done(Design::CheckThenCount, "rolling", 5));
        let words = report(&runs).verdict()?;
        assert!(
            words.contains("(v2) was refused 5 times") && words.contains("Weir kept"),
            "{words}"
        );
        Ok(())
    }
}
