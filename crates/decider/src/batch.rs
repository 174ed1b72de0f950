//! Asks for one limit that arrive while a call is in flight are decided together by the next call.
//!
//! Promise: one call at a time per limit, so the store is asked no more often than it answers.
//! Wants are summed per class, and what is granted goes to the asks in the order of their arrival.
//! Each ask is answered by its deadline, whatever the store does:
//! - at most [`QUEUE_MAX`] asks wait, the next is refused at once;
//! - a call lasts at most one deadline, counted from its start, and takes all that waits; so an ask
//!   that arrived during it is taken before its own deadline, or at it;
//! - an ask whose deadline passes while its call is in flight is refused then, and what it would
//!   have been granted goes to the asks behind it. If none is left, the grant is lost, not kept.
//!
//! One timer per call, not per ask: the deadlines of a batch are in order of arrival.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use limits::members::{self, Caller, Standing};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};
use tracing::warn;

use crate::{
    metrics::LimitMetrics,
    sparse::Sparse,
    store::{Account, Decision, Store, StoreError, within},
};

/// Asks that may wait for one limit: a second's worth at a rate no single limit has needed.
pub const QUEUE_MAX: usize = 4096;

/// So many requests of a class, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub class: usize,
    pub n: u64,
}

/// What one ask gets: its wants with `n` lowered to what was granted, and what all get to know.
#[derive(Debug)]
pub struct Answer {
    pub granted: Vec<Want>,
    pub standing: Standing,
    pub shared: Arc<Shared>,
}

/// What all asks of a batch get to know.
#[derive(Debug)]
pub struct Shared {
    pub decision: Decision,
    /// The same as the endpoint writes it, by whoever needs it first.
    pub written: OnceLock<String>,
}

impl From<Decision> for Shared {
    fn from(decision: Decision) -> Self {
        Self { decision, written: OnceLock::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("{QUEUE_MAX} asks wait for this limit already")]
    Full,
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Ask {
    deadline: Instant,
    caller: Option<Caller>,
    /// Its place in what the store is asked.
    row: usize,
    wants: Vec<Want>,
    reply: oneshot::Sender<Result<Answer, AskError>>,
}

/// The queue before one limit.
#[derive(Clone)]
pub struct Batcher {
    queue: mpsc::Sender<Ask>,
    deadline: Duration,
    metrics: LimitMetrics,
}

impl Batcher {
    /// Starts the task that asks the store; it ends with the last clone of the batcher.
    /// Every [`Want::class`] is one of the account's.
    pub fn start(
        store: Arc<dyn Store>,
        limit: usize,
        account: &Account,
        deadline: Duration,
        metrics: LimitMetrics,
    ) -> Self {
        let (queue, asks) = mpsc::channel(QUEUE_MAX);
        let driver = Driver {
            store,
            limit,
            name: account.name.clone(),
            classes: account.classes.len(),
            deadline,
            metrics: metrics.clone(),
            log: Sparse::default(),
        };
        tokio::spawn(driver.run(asks));
        Self { queue, deadline, metrics }
    }

    /// # Errors
    /// The queue is full, or the store failed or was late.
    pub async fn ask(&self, caller: Option<Caller>, wants: Vec<Want>) -> Result<Answer, AskError> {
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + self.deadline;
        let ask = Ask { deadline, caller, row: 0, wants, reply };
        if self.queue.try_send(ask).is_err() {
            self.metrics.failed("full");
            return Err(AskError::Full);
        }
        let gone = || StoreError::Unreachable("its task has ended".to_owned()).into();
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

struct Driver {
    store: Arc<dyn Store>,
    limit: usize,
    name: String,
    classes: usize,
    deadline: Duration,
    metrics: LimitMetrics,
    log: Sparse,
}

impl Driver {
    async fn run(self, mut asks: mpsc::Receiver<Ask>) {
        let mut waiting = Vec::new();
        while asks.recv_many(&mut waiting, QUEUE_MAX).await > 0 {
            // Let every connection that is ready put its ask in before the call goes out.
            tokio::task::yield_now().await;
            while waiting.len() < QUEUE_MAX
                && let Ok(ask) = asks.try_recv()
            {
                waiting.push(ask);
            }
            self.decide(&mut waiting).await;
            waiting.clear();
        }
    }

    /// Decides for all that waits and answers each.
    async fn decide(&self, waiting: &mut Vec<Ask>) {
        let now = Instant::now();
        waiting.retain(|ask| !ask.reply.is_closed());
        let late = waiting.partition_point(|ask| ask.deadline <= now);
        self.refuse(waiting.drain(..late), &StoreError::Late(self.deadline));
        if waiting.is_empty() {
            return;
        }
        let rows = rows(waiting, self.classes);
        let outcome = self.call(&rows, waiting).await;
        self.metrics.called(now.elapsed());
        match outcome {
            Ok(decision) => {
                self.metrics.decided(&in_time(&rows, &decision), &decision);
                hand_out(waiting.drain(..), decision);
            }
            Err(error) => {
                self.metrics.store_failed(&error);
                if self.log.is_due() {
                    warn!(limit = self.name, %error, "no decision");
                }
                self.refuse(waiting.drain(..), &error);
            }
        }
    }

    /// One call to the store; refuses, and takes out, the asks whose deadline passes meanwhile.
    async fn call(
        &self,
        asks: &[members::Ask],
        waiting: &mut Vec<Ask>,
    ) -> Result<Decision, StoreError> {
        let mut call = pin!(within(self.deadline, self.store.decide(self.limit, asks)));
        loop {
            let Some(first) = waiting.first() else {
                return call.await;
            };
            match timeout_at(first.deadline, &mut call).await {
                Ok(outcome) => return outcome,
                Err(_) => {
                    let now = Instant::now();
                    let late = waiting.partition_point(|ask| ask.deadline <= now);
                    self.refuse(waiting.drain(..late), &StoreError::Late(self.deadline));
                }
            }
        }
    }

    fn refuse(&self, asks: impl Iterator<Item = Ask>, error: &StoreError) {
        for ask in asks {
            self.metrics.failed(error.kind());
            let _ = ask.reply.send(Err(error.clone().into()));
        }
    }
}

/// What the store is asked: the asks of one gateway are one, with the earliest of their deadlines.
fn rows(waiting: &mut [Ask], classes: usize) -> Vec<members::Ask> {
    let mut rows: Vec<members::Ask> = Vec::new();
    for ask in waiting {
        let same = |row: &members::Ask| who(row.caller.as_ref()) == who(ask.caller.as_ref());
        ask.row = rows.iter().position(same).unwrap_or_else(|| {
            rows.push(members::Ask { caller: ask.caller.clone(), wants: vec![0; classes] });
            rows.len() - 1
        });
        let row = &mut rows[ask.row];
        if let (Some(known), Some(caller)) = (&mut row.caller, &ask.caller) {
            known.deadline = known.deadline.min(caller.deadline);
        }
        for want in &ask.wants {
            row.wants[want.class] += want.n;
        }
    }
    rows
}

fn who(caller: Option<&Caller>) -> Option<(&str, bool)> {
    caller.map(|caller| (caller.gateway.as_str(), caller.leaves))
}

/// The wants that were decided about.
fn in_time(rows: &[members::Ask], decision: &Decision) -> Vec<u64> {
    let mut total = vec![0; decision.shares.len()];
    let standings = rows.iter().zip(&decision.standings);
    for (row, _) in standings.filter(|(_, standing)| **standing != Standing::Late) {
        total.iter_mut().zip(&row.wants).for_each(|(total, want)| *total += want);
    }
    total
}

/// First come, first served, class by class; what came too late gets nothing.
fn hand_out(asks: impl Iterator<Item = Ask>, decision: Decision) {
    let mut left: Vec<u64> = decision.shares.iter().map(|share| share.granted).collect();
    let shared = Arc::new(Shared::from(decision));
    for mut ask in asks {
        // An asker that has gone cannot send; its share is of use to the next.
        if ask.reply.is_closed() {
            continue;
        }
        let standings = &shared.decision.standings;
        let standing = standings.get(ask.row).copied().unwrap_or_default();
        for want in &mut ask.wants {
            let left = &mut left[want.class];
            want.n = if standing == Standing::Late { 0 } else { want.n.min(*left) };
            *left -= want.n;
        }
        let answer = Answer { granted: ask.wants, standing, shared: Arc::clone(&shared) };
        let _ = ask.reply.send(Ok(answer));
    }
}

#[cfg(test)]
mod tests;
