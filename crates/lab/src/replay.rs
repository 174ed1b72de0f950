//! One run of one design: queues are filled on schedule, pods come up, the provider judges.
//!
//! Promise: every figure about the contract is the provider's. Waits run from the moment a message
//! was made, whatever happened to it since; a login code that was never accepted counts with the
//! time it had waited when the run ended, so that a design cannot look fast by losing the slow ones.

mod ledger;
mod outcome;
mod pod;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::design::{Design, Pod, roster};
use crate::http::CallError;
use crate::judge::Judge;
use crate::load::Load;
use crate::permit::Share;
use crate::queue::{Queue, connect};
use crate::schedule::{Stream, plan};
use ledger::Ledger;
pub use outcome::{Accounts, OtpWait, Outcome, Tenth};
use pod::{Hand, Place};

/// After the run, so that the login codes of its last second are judged like those before.
const TAIL: Duration = Duration::from_millis(1_200);
/// Whatever is on its way to the provider when the run ends is over by then.
const LAST_EXCHANGE: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Pods connect while the second before the first runs out.
const PREPARED: Duration = Duration::from_millis(300);

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the queue's Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("the provider's report: {0}")]
    Judge(#[from] CallError),
    #[error("a sender ended by itself: {0}")]
    Sender(String),
    #[error("a sender did not end within {LAST_EXCHANGE:?}")]
    Endless,
}

/// Where a run takes place. Nobody else may use any of it meanwhile.
#[derive(Debug, Clone)]
pub struct Site {
    /// Queues and counters of the senders; emptied before each run.
    pub redis: String,
    pub judge: Judge,
    /// How direct senders reach the provider, `HOST:PORT`.
    pub provider: String,
    /// Weir's gateways, `HOST:PORT`.
    pub gateways: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct Trial {
    pub design: Design,
    pub load: Load,
    pub lasting: Duration,
    /// When login codes come, and marketing in a Poisson campaign.
    pub seed: u64,
}

/// Runs it from the next full second of the wall clock on: counters per second begin there.
pub async fn replay(trial: Trial, site: &Site) -> Result<Outcome, ReplayError> {
    let mut admin = connect(&site.redis).await?;
    redis::cmd("FLUSHDB").query_async::<()>(&mut admin).await?;
    let start = next_full_second();
    let ledger = Arc::new(Ledger::new(start));
    let (stop, stopped) = watch::channel(false);
    let mut pods = JoinSet::new();
    for (index, pod) in pods_of(trial.design, trial.lasting).into_iter().enumerate() {
        let share = Share::of_a_pod();
        for worker in 0..pod.workers {
            let place = Place { pod, index, worker, share: share.clone() };
            let hand = Hand::new(trial.design, place, site, &ledger, stopped.clone());
            pods.spawn(hand.run(start + pod.starts));
        }
    }
    let streams = trial.load.streams(trial.lasting, trial.seed);
    let mut queues = Vec::new();
    for stream in &streams {
        queues.push(Queue::open(&site.redis, &stream.class, "producer").await?);
    }
    sleep_until(start).await;
    site.judge.reset().await?;
    let end = start + trial.lasting;
    produce(start, &streams, &mut queues, &ledger).await?;
    sleep_until(end).await;
    let report = site.judge.report().await?;
    while end.elapsed() < TAIL && ledger.otp_outstanding() {
        sleep(LOOK_EVERY).await;
    }
    ledger.end_waits();
    // No pod listening any more would mean that all have ended, which the next lines find out.
    let _ = stop.send(true);
    timeout(LAST_EXCHANGE, all_ended(pods)).await.map_err(|_| ReplayError::Endless)??;
    let queued = queues[0].len().await? + queues[1].len().await?;
    let finally = site.judge.report().await?;
    let arrivals = site.judge.arrivals().await?;
    Ok(Outcome::of(trial.lasting, &ledger, report, &finally, &arrivals, queued))
}

fn pods_of(design: Design, lasting: Duration) -> Vec<Pod> {
    match design {
        Design::SingleSender => {
            let starts = Duration::ZERO;
            vec![Pod { system: "sender", number: 0, class: "otp", workers: 1, starts }]
        }
        _ => roster(lasting),
    }
}

async fn all_ended(mut pods: JoinSet<Result<(), ReplayError>>) -> Result<(), ReplayError> {
    while let Some(done) = pods.join_next().await {
        done.map_err(|error| ReplayError::Sender(error.to_string()))??;
    }
    Ok(())
}

fn next_full_second() -> Instant {
    let into = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let left = Duration::from_secs(1) - Duration::from_nanos(into.into());
    let pause = if left < PREPARED { left + Duration::from_secs(1) } else { left };
    Instant::now() + pause
}

/// Puts every message into its queue when it is due. Streams of one class are numbered on.
async fn produce(
    start: Instant,
    streams: &[Stream],
    queues: &mut [Queue],
    ledger: &Ledger,
) -> Result<(), ReplayError> {
    for due in plan(streams) {
        let at = start + due.at;
        if at > Instant::now() {
            sleep_until(at).await;
        }
        let class = &streams[due.stream].class;
        let number = ledger.made(class);
        queues[due.stream].push(number).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
