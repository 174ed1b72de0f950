//! One Envoy worker's part: its lanes, its calls to the decider, its reports.
//!
//! Promise: whoever waits is settled when the call it waits for is over, whatever became of the
//! call; no call is made for what memory knows; a failure is paid for once. Decides only; the host
//! does what it says. All instants are on the process's monotonic clock.

use std::collections::BTreeMap;

use limits::{
    Micros,
    lease::{self, Duty},
};

use crate::{
    calls,
    config::Config,
    gate::{Admission, Asking, Cause, Gate, Refused, SharedData},
    lane::{Call, Lane, Waiter},
    metrics::OfLimit,
    reports::Reports,
};

/// The answer to whoever was not granted and told no time: cannot happen.
const NO_WAIT: Micros = Micros::from_millis(100);
const NO_WAY: &str = "there is no way to it";

/// What the worker needs of Envoy.
pub trait Host: SharedData {
    /// Starts a call to the decider; `None` when there is no way to it.
    fn call(&self, path: &str, body: &[u8], timeout: Micros) -> Option<u32>;
    fn count(&self, limit: usize, what: OfLimit);
    /// One line for people, on a change of state.
    fn say(&self, text: &str);
}

/// A stream that waits no longer.
#[derive(Debug)]
pub struct Settled {
    pub limit: usize,
    pub class: usize,
    pub waiter: Waiter,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The decider granted it.
    Granted,
    /// It goes on the gateway's own share.
    Fallback,
    Refused(Refused),
}

/// What a call was for.
#[derive(Debug)]
enum Purpose {
    /// For the streams of a limit: what was asked of each class.
    Decide {
        limit: usize,
        wants: Vec<u64>,
        renews: bool,
    },
    /// For the streams of a limit, but asking for nothing: their own call comes after it.
    ReadClock {
        limit: usize,
    },
    Probe {
        limit: usize,
    },
    /// Keeps a lease, or gives it back.
    Duty {
        limit: usize,
        duty: Duty,
    },
    Report {
        id: String,
    },
}

struct Sent {
    purpose: Purpose,
    at: Micros,
}

pub struct Worker {
    gates: Vec<Gate>,
    lanes: Vec<Lane>,
    calls: BTreeMap<u32, Sent>,
    reports: Reports,
    /// Per limit: the last call came too late for the store, by the store's clock.
    late: Vec<bool>,
    /// Streams have been seen: this is no main thread, whose calls may go nowhere.
    serves: bool,
    name: Name,
}

/// What a worker calls itself.
#[derive(Debug, Clone)]
pub struct Name {
    /// The gateway, the same for all workers of a process and for no other.
    pub gateway: String,
    /// A beginning for ids that no other worker has.
    pub ids: String,
}

impl Worker {
    pub fn new(config: &Config, name: Name) -> Self {
        let limits = config.policy.limits.iter();
        Self {
            late: vec![false; config.policy.limits.len()],
            lanes: limits.clone().map(|limit| Lane::new(limit.classes.len())).collect(),
            gates: limits
                .zip(&config.own)
                .map(|(limit, own)| Gate::new(limit, &config.policy.hash, own.clone()))
                .collect(),
            calls: BTreeMap::new(),
            reports: Reports::default(),
            serves: false,
            name,
        }
    }

    /// Where a new request goes. On [`Admission::Ask`] it must [`join`](Self::join).
    pub fn admit(
        &mut self,
        host: &impl Host,
        limit: usize,
        class: usize,
        now: Micros,
    ) -> Admission {
        self.serves = true;
        match self.gates.get_mut(limit) {
            Some(gate) => gate.admit(host, class, now),
            None => broken(host, limit),
        }
    }

    /// Lets a request wait for the next call. True if a call should be made soon.
    pub fn join(&mut self, limit: usize, class: usize, waiter: Waiter) -> Result<bool, Waiter> {
        let Some(lane) = self.lanes.get_mut(limit) else {
            return Err(waiter);
        };
        lane.join(class, waiter)?;
        Ok(lane.call().is_none())
    }

    /// Makes the calls that are due: one for each limit for which someone waits and none is on its
    /// way, and the reports. Returns who was settled without one.
    pub fn ask(&mut self, host: &impl Host, config: &Config, now: Micros) -> Vec<Settled> {
        let mut settled = Vec::new();
        for limit in 0..self.lanes.len() {
            if self.lanes.get(limit).is_some_and(|lane| lane.call().is_none() && !lane.is_empty()) {
                self.ask_one(host, config, limit, now, &mut settled);
            }
        }
        self.report(host, config, now);
        settled
    }

    fn ask_one(
        &mut self,
        host: &impl Host,
        config: &Config,
        limit: usize,
        now: Micros,
        settled: &mut Vec<Settled>,
    ) {
        let (Some(gate), Some(lane), Some(policy)) =
            (self.gates.get_mut(limit), self.lanes.get_mut(limit), config.policy.limits.get(limit))
        else {
            return;
        };
        // Another worker may have learnt meanwhile what makes the call needless.
        for (class, waiter) in lane.clear() {
            match gate.admit(host, class, now) {
                Admission::Ask => {
                    if let Err(waiter) = lane.join(class, waiter) {
                        settled.push(full(limit, class, waiter));
                    }
                }
                other => settled.push(settle(limit, class, waiter, other)),
            }
        }
        if lane.is_empty() {
            return;
        }
        let wants = lane.wants();
        let (purpose, deadline) = match gate.ask(host, &wants, now) {
            Asking::Ask { deadline } => {
                let renews = deadline.is_some();
                (Purpose::Decide { limit, wants, renews }, deadline)
            }
            Asking::ReadClock => (Purpose::ReadClock { limit }, None),
            Asking::Not => return self.release(host, limit, now, settled),
        };
        let asked = match &purpose {
            Purpose::Decide { wants, .. } => wants.as_slice(),
            _ => &[],
        };
        let duty = deadline.map(|deadline| (Duty::Renew, deadline));
        let body = calls::decide(policy, &config.policy.hash, &self.name.gateway, asked, duty);
        host.count(limit, OfLimit::Calls);
        match host.call(limits::wire::DECIDE_PATH, &body, config.policy.decider_timeout) {
            Some(token) => {
                lane.asked(Call { token, sent_at: now });
                self.calls.insert(token, Sent { purpose, at: now });
            }
            None => {
                self.failed(host, limit, lease::Call::Ask, now, NO_WAY);
                self.release(host, limit, now, settled);
            }
        }
    }

    /// The stream has ended while it waited.
    pub fn leave(&mut self, limit: usize, class: usize, stream: u32) {
        if let Some(lane) = self.lanes.get_mut(limit) {
            lane.leave(class, stream);
        }
    }
}

fn full(limit: usize, class: usize, waiter: Waiter) -> Settled {
    let refused = Refused { wait: Micros::SECOND, cause: Cause::QueueFull };
    Settled { limit, class, waiter, verdict: Verdict::Refused(refused) }
}

fn settle(limit: usize, class: usize, waiter: Waiter, admission: Admission) -> Settled {
    let verdict = match admission {
        Admission::Forward => Verdict::Fallback,
        Admission::Refuse(refused) => Verdict::Refused(refused),
        // Only `without_decider` leads here, and the decider has come back meanwhile.
        Admission::Ask => Verdict::Refused(Refused { wait: NO_WAIT, cause: Cause::Fallback }),
    };
    Settled { limit, class, waiter, verdict }
}

fn broken(host: &impl Host, limit: usize) -> Admission {
    host.count(limit, OfLimit::Broken);
    Admission::Refuse(Refused { wait: NO_WAIT, cause: Cause::Fallback })
}

mod answers;
mod upkeep;

#[cfg(test)]
mod tests;
