//! Asks a store for more than the limit gives, all the time, and keeps book of what was granted.
//!
//! The judge counts what it got, in windows; it knows the policy's numbers and no arithmetic of ours.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use decider::store::{Store, StoreError, within};

use crate::plain::Plain;

/// The sample policy's: 40 ms of 50.
pub const DEADLINE: Duration = Duration::from_millis(40);
/// From a store's return to the first grant.
pub const RECOVERY: Duration = Duration::from_secs(2);
/// For calls that must not fail: a busy machine is no fault, a wait for another node is longer.
const LONG_DEADLINE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(10);

/// [`crate::policies::SAMPLE`]: 90 per second, burst 5.
const BURST: u64 = 5;
const PER_SECOND: u64 = 90;

/// One call, from the caller's side.
struct Entry {
    started: Instant,
    ended: Instant,
    outcome: Result<u64, StoreError>,
}

pub struct Load {
    book: Arc<Mutex<Vec<Entry>>>,
    task: tokio::task::JoinHandle<()>,
    deadline: Duration,
}

impl Load {
    /// On limit `limit` of a store that decides under [`crate::policies::SAMPLE`].
    pub fn start(store: Arc<dyn Store>, limit: usize) -> Self {
        Self::with_deadline(store, limit, DEADLINE)
    }

    /// For [`Load::check_flawless`].
    pub fn start_patient(store: Arc<dyn Store>, limit: usize) -> Self {
        Self::with_deadline(store, limit, LONG_DEADLINE)
    }

    fn with_deadline(store: Arc<dyn Store>, limit: usize, deadline: Duration) -> Self {
        let book = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&book);
        let task = tokio::spawn(async move {
            loop {
                let started = Instant::now();
                let outcome = within(deadline, store.ask(limit, &[10, 10])).await;
                let outcome = outcome.map(|d| d.shares.iter().map(|share| share.granted).sum());
                kept.lock().unwrap().push(Entry { started, ended: Instant::now(), outcome });
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        Self { book, task, deadline }
    }

    /// Waits for a grant that was asked for from now on.
    pub async fn until_granted(&self, patience: Duration) {
        self.until("a grant", patience, |entry| matches!(entry.outcome, Ok(1..))).await;
    }

    /// Waits for a call that fails from now on; returns why.
    pub async fn until_failed(&self) -> StoreError {
        self.until("a failure", PATIENCE, |entry| entry.outcome.is_err()).await;
        self.failure()
    }

    /// The last failure so far.
    pub fn failure(&self) -> StoreError {
        let book = self.book.lock().unwrap();
        let failure = book.iter().rev().find_map(|entry| entry.outcome.clone().err());
        failure.expect("no call has failed")
    }

    async fn until(&self, what: &str, patience: Duration, is_it: impl Fn(&Entry) -> bool) {
        let start = Instant::now();
        loop {
            let found = {
                let book = self.book.lock().unwrap();
                book.iter().rev().take_while(|entry| entry.started >= start).any(&is_it)
            };
            if found {
                return;
            }
            assert!(start.elapsed() < patience, "no {what} within {patience:?}: {}", self.last());
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    fn last(&self) -> String {
        self.book
            .lock()
            .unwrap()
            .last()
            .map_or("-".to_owned(), |last| format!("{:?}", last.outcome))
    }

    /// Ends the load. In no second more was granted than the limit allows, and, if the store lost
    /// its state `lost` times, a burst more for each.
    pub fn check(self, lost: u64) {
        let book = self.book.lock().unwrap();
        let grants: Vec<(Instant, u64)> =
            book.iter().filter_map(|e| Some((e.ended, *e.outcome.as_ref().ok()?))).collect();
        let most = (0..grants.len()).map(|first| {
            let end = grants[first].0 + Duration::from_secs(1);
            grants[first..].iter().take_while(|(at, _)| *at < end).map(|(_, n)| n).sum::<u64>()
        });
        let most = most.max().unwrap_or(0);
        assert!(most > BURST, "{most} granted in a second: nothing was tested");
        // What was decided up to a deadline before the second began is seen in it, too.
        let seen = 1_000 + self.deadline.as_millis() as u64;
        let allowed = BURST + PER_SECOND * seen / 1_000 + lost * BURST;
        assert!(most <= allowed, "{most} granted in one second, {allowed} at most");
    }

    /// Ends the load; no call failed.
    pub fn check_flawless(self) {
        let failed: Vec<StoreError> =
            self.book.lock().unwrap().iter().filter_map(|e| e.outcome.clone().err()).collect();
        assert!(failed.is_empty(), "{} calls failed: {:?}", failed.len(), failed.first());
        self.check(0);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}
