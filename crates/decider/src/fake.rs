//! A store that the unit tests script: how long each call takes, and how much it has to grant.
//! Time is tokio's paused clock; nothing really sleeps.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use limits::{
    Micros,
    decision::{Reason, Share, State},
    members::{Ask, Standing},
};

use crate::store::{Call, Decision, Snapshot, Store, StoreError};

#[derive(Default)]
pub struct Fake(Mutex<Script>);

#[derive(Default)]
pub struct Script {
    /// How long the next calls take; after that they take no time.
    pub takes: VecDeque<Duration>,
    /// What is left to grant, per class.
    pub left: Vec<u64>,
    /// The wants of each call.
    pub calls: Vec<Vec<u64>>,
    pub fails: Option<StoreError>,
}

/// Longer than any test.
pub const NEVER: Duration = Duration::from_secs(1_000_000);

impl Fake {
    pub fn new(left: &[u64], takes: &[Duration]) -> Self {
        let script = Script {
            takes: takes.iter().copied().collect(),
            left: left.to_vec(),
            ..Script::default()
        };
        Self(Mutex::new(script))
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    async fn answer<T>(&self, answer: impl FnOnce(&mut Script) -> T) -> Result<T, StoreError> {
        let takes = self.script().takes.pop_front();
        if let Some(takes) = takes {
            tokio::time::sleep(takes).await;
        }
        let mut script = self.script();
        match script.fails.clone() {
            Some(error) => Err(error),
            None => Ok(answer(&mut script)),
        }
    }
}

impl Store for Fake {
    fn decide<'a>(&'a self, _limit: usize, asks: &'a [Ask]) -> Call<'a, Decision> {
        let total = |class| asks.iter().map(|ask| ask.wants[class]).sum();
        let wants: Vec<u64> = (0..asks[0].wants.len()).map(total).collect();
        self.script().calls.push(wants.clone());
        Box::pin(self.answer(move |script| {
            let share = |(left, want): (&mut u64, &u64)| {
                let granted = (*left).min(*want);
                *left -= granted;
                let held = granted < *want;
                Share {
                    granted,
                    wait: Micros(if held { 11_112 } else { 0 }),
                    reason: held.then_some(Reason::Rate),
                }
            };
            let shares = script.left.iter_mut().zip(&wants).map(share).collect();
            let standing = |ask: &Ask| match &ask.caller {
                None => Standing::Guest,
                Some(caller) if caller.deadline < Micros(1) => Standing::Late,
                Some(_) => Standing::Member,
            };
            let standings = asks.iter().map(standing).collect();
            let (now, penalty, born) = (Micros(1), Micros::ZERO, Micros(1));
            Decision { now, penalty, born, shares, standings }
        }))
    }

    fn throttled<'a>(&'a self, _limit: usize, pause: Micros, _id: &'a str) -> Call<'a, Micros> {
        Box::pin(self.answer(move |_| pause))
    }

    fn look(&self, _limit: usize) -> Call<'_, Snapshot> {
        Box::pin(self.answer(|_| Snapshot { now: Micros(1), state: State::default() }))
    }

    fn ping(&self) -> Call<'_, ()> {
        Box::pin(self.answer(|_| ()))
    }
}
