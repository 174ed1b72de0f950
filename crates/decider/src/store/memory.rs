//! The embedded store: one process, nothing to install, gone with the process.
//!
//! Its clock starts at the time of day and then only counts forward, so that a step of the system's
//! clock neither stalls nor opens a limit.

use std::{
    collections::{HashSet, VecDeque},
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use limits::{
    Micros,
    decision::{Outcome, State, decide, penalise},
    members::Ask,
};

use super::{Account, Call, Decision, Snapshot, Store};

/// Reports remembered per limit. Gateways repeat a report for seconds; at the contract's own rate
/// of refusals this many last far longer.
const REPORTS_MAX: usize = 10_000;

pub struct Memory {
    accounts: Vec<(Account, Mutex<Kept>)>,
    clock: Clock,
}

type Clock = Box<dyn Fn() -> Micros + Send + Sync>;

#[derive(Default)]
struct Kept {
    state: State,
    reports: Reports,
}

/// The last so many report ids, the oldest first.
#[derive(Default)]
struct Reports {
    order: VecDeque<String>,
    known: HashSet<String>,
}

impl Memory {
    pub fn new(accounts: Vec<Account>) -> Self {
        let start = Instant::now();
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with_clock(accounts, move || Micros((epoch + start.elapsed()).as_micros() as u64))
    }

    pub fn with_clock(
        accounts: Vec<Account>,
        clock: impl Fn() -> Micros + Send + Sync + 'static,
    ) -> Self {
        let kept = |account| (account, Mutex::default());
        Self { accounts: accounts.into_iter().map(kept).collect(), clock: Box::new(clock) }
    }

    fn account(&self, limit: usize) -> (&Account, MutexGuard<'_, Kept>) {
        let (account, kept) = &self.accounts[limit];
        // Every change is complete in itself, so a panic elsewhere leaves nothing half-done.
        (account, kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for Memory {
    fn decide<'a>(&'a self, limit: usize, asks: &'a [Ask]) -> Call<'a, Decision> {
        let (account, mut kept) = self.account(limit);
        let now = (self.clock)();
        let Outcome { shares, standings } = decide(&account.rules, &mut kept.state, now, asks);
        let (penalty, born) = (kept.state.penalty_until.minus(now), kept.state.born);
        Box::pin(ready(Ok(Decision { now, penalty, born, shares, standings })))
    }

    fn throttled<'a>(&'a self, limit: usize, pause: Micros, id: &'a str) -> Call<'a, Micros> {
        let (account, mut kept) = self.account(limit);
        let now = (self.clock)();
        let pause = if kept.reports.is_new(id) { pause } else { Micros::ZERO };
        let left = penalise(&account.rules, &mut kept.state, now, pause);
        Box::pin(ready(Ok(left)))
    }

    fn look(&self, limit: usize) -> Call<'_, Snapshot> {
        let (_, kept) = self.account(limit);
        let now = (self.clock)();
        let state = kept.state.clone();
        Box::pin(ready(Ok(Snapshot { now, state })))
    }

    fn ping(&self) -> Call<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

impl Reports {
    fn is_new(&mut self, id: &str) -> bool {
        if !self.known.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > REPORTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}
