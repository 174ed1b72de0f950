//! One Envoy worker's part: its lanes, its calls to the decider, its reports.
//!
//! Promise: whoever waits is settled when the call it waits for is over, whatever became of the
//! call; no call is made for what memory knows; a failure is paid for once. Decides only; the host
//! does what it says. All instants are on the process's monotonic clock.

use std::collections::BTreeMap;

use limits::Micros;

use crate::{
    calls,
    config::Config,
    gate::{Admission, Cause, Gate, Refused, SharedData},
    lane::{Call, Lane, Waiter},
    metrics::OfLimit,
    reports::Reports,
};

/// How long after its time-out a call counts as lost: Envoy always answers, so this only guards
/// against the case that it does not.
const WATCHDOG: Micros = Micros::from_millis(50);
/// The answer to whoever was not granted and told no time: cannot happen.
const NO_WAIT: Micros = Micros::from_millis(100);

/// Refusals that wait for the next turn.
const DEFERRED_MAX: usize = 4_096;
const NO_WAY: &str = "there is no way to it";
const NO_ANSWER: &str = "no usable answer in time";

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
    },
    Probe {
        limit: usize,
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
    /// Refused, and to be told so in the next turn.
    deferred: Vec<Settled>,
    /// Streams have been seen: this is no main thread, whose calls may go nowhere.
    serves: bool,
    gateway: String,
}

impl Worker {
    pub fn new(config: &Config, gateway: String) -> Self {
        let limits = config.policy.limits.iter();
        Self {
            lanes: limits.clone().map(|limit| Lane::new(limit.classes.len())).collect(),
            gates: limits
                .zip(&config.headroom)
                .map(|(limit, headroom)| Gate::new(limit, &config.policy.hash, headroom.clone()))
                .collect(),
            calls: BTreeMap::new(),
            reports: Reports::default(),
            deferred: Vec::new(),
            serves: false,
            gateway,
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

    /// Lets a refusal be told in the next turn. A reply in the turn in which the request's headers
    /// came, before its body was read, makes Envoy close an HTTP/1 connection: each refused sender
    /// would have to connect again.
    pub fn defer(&mut self, refusal: Settled) -> Result<(), Settled> {
        if self.deferred.len() >= DEFERRED_MAX {
            return Err(refusal);
        }
        self.deferred.push(refusal);
        Ok(())
    }

    /// Makes the calls that are due: one for each limit for which someone waits and none is on its
    /// way, and the reports. Returns who was settled without one.
    pub fn ask(&mut self, host: &impl Host, config: &Config, now: Micros) -> Vec<Settled> {
        let mut settled = std::mem::take(&mut self.deferred);
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
                        let refused = Refused { wait: Micros::SECOND, cause: Cause::QueueFull };
                        let verdict = Verdict::Refused(refused);
                        settled.push(Settled { limit, class, waiter, verdict });
                    }
                }
                other => settled.push(settle(limit, class, waiter, other)),
            }
        }
        if lane.is_empty() {
            return;
        }
        let wants = lane.wants();
        gate.claim(host, &wants, now);
        let body = calls::decide(policy, &config.policy.hash, &self.gateway, &wants);
        let timeout = config.policy.decider_timeout;
        host.count(limit, OfLimit::Calls);
        match host.call(limits::wire::DECIDE_PATH, &body, timeout) {
            Some(token) => {
                lane.asked(Call { token, sent_at: now });
                let purpose = Purpose::Decide { limit, wants };
                self.calls.insert(token, Sent { purpose, at: now });
            }
            None => {
                self.failed(host, limit, false, now, NO_WAY);
                self.release(host, limit, now, settled);
            }
        }
    }

    /// A call is over; `body` is the answer, if it is one of a decider. Returns who was settled.
    pub fn answered(
        &mut self,
        host: &impl Host,
        config: &Config,
        token: u32,
        body: Option<&[u8]>,
        now: Micros,
    ) -> Vec<Settled> {
        let mut settled = Vec::new();
        // A call that the watchdog gave up is not here any more.
        let Some(Sent { purpose, at }) = self.calls.remove(&token) else {
            return settled;
        };
        // A decision older than the time-out must not be used: its place in time is gone.
        let body = body.filter(|_| now.minus(at) <= config.policy.decider_timeout);
        let answer = |limit: usize, wants: &[u64]| {
            calls::read(config.policy.limits.get(limit)?, wants, body?)
        };
        match purpose {
            Purpose::Report { id } => self.reports.answered(&id, body.is_some(), now),
            Purpose::Probe { limit } => match answer(limit, &[]) {
                Some(answer) => self.learn(host, limit, &answer, now),
                None => self.failed(host, limit, true, now, NO_ANSWER),
            },
            Purpose::Decide { limit, wants } => match answer(limit, &wants) {
                Some(answer) => {
                    self.learn(host, limit, &answer, now);
                    self.settle(host, limit, &answer, &mut settled);
                }
                None => {
                    self.failed(host, limit, false, now, NO_ANSWER);
                    self.release(host, limit, now, &mut settled);
                }
            },
        }
        settled.append(&mut self.ask(host, config, now));
        settled
    }

    fn learn(&mut self, host: &impl Host, limit: usize, answer: &calls::Answer, now: Micros) {
        let Some(gate) = self.gates.get_mut(limit) else {
            return;
        };
        if gate.learn(host, &answer.known, answer.penalty, now) {
            host.say("the decider answers again");
        }
    }

    /// Whoever the answer speaks of waits no longer.
    fn settle(
        &mut self,
        host: &impl Host,
        limit: usize,
        answer: &calls::Answer,
        settled: &mut Vec<Settled>,
    ) {
        let Some(lane) = self.lanes.get_mut(limit) else {
            return;
        };
        let done = lane.settle(&answer.granted);
        for (class, waiter) in done.granted {
            settled.push(Settled { limit, class, waiter, verdict: Verdict::Granted });
        }
        for (class, waiter) in done.refused {
            let known = answer.known.get(class).copied().unwrap_or_default();
            let refused = match known.reason {
                Some(reason) => Refused { wait: known.wait, cause: Cause::Decided(reason) },
                None => {
                    host.count(limit, OfLimit::Broken);
                    Refused { wait: NO_WAIT, cause: Cause::Fallback }
                }
            };
            settled.push(Settled { limit, class, waiter, verdict: Verdict::Refused(refused) });
        }
    }

    fn failed(&mut self, host: &impl Host, limit: usize, probe: bool, now: Micros, why: &str) {
        host.count(limit, OfLimit::CallsFailed);
        if self.gates.get_mut(limit).is_some_and(|gate| gate.failed(host, probe, now)) {
            host.count(limit, OfLimit::BreakerOpened);
            host.say(&format!("the decider is unreachable ({why}); sending on the own share"));
        }
    }

    /// Everybody who waits is settled without the decider, on the own share.
    fn release(&mut self, host: &impl Host, limit: usize, now: Micros, settled: &mut Vec<Settled>) {
        let (Some(gate), Some(lane)) = (self.gates.get_mut(limit), self.lanes.get_mut(limit))
        else {
            return;
        };
        for (class, waiter) in lane.clear() {
            let admission = gate.without_decider(host, class, now);
            settled.push(settle(limit, class, waiter, admission));
        }
    }

    /// Called every few milliseconds: probes, reports, and calls that Envoy never answered.
    pub fn tick(&mut self, host: &impl Host, config: &Config, now: Micros) -> Vec<Settled> {
        let mut settled = Vec::new();
        if !self.serves {
            return settled;
        }
        let patience = config.policy.decider_timeout.plus(WATCHDOG);
        let lost = self.calls.iter().filter(|(_, sent)| now.minus(sent.at) > patience);
        for token in lost.map(|(token, _)| *token).collect::<Vec<_>>() {
            settled.append(&mut self.answered(host, config, token, None, now));
        }
        for (limit, policy) in config.policy.limits.iter().enumerate() {
            if !self.gates.get_mut(limit).is_some_and(|gate| gate.claim_probe(host, now)) {
                continue;
            }
            host.count(limit, OfLimit::Probes);
            let body = calls::decide(policy, &config.policy.hash, &self.gateway, &[]);
            match host.call(limits::wire::DECIDE_PATH, &body, config.policy.decider_timeout) {
                Some(token) => {
                    self.calls.insert(token, Sent { purpose: Purpose::Probe { limit }, at: now });
                }
                None => self.failed(host, limit, true, now, NO_WAY),
            }
        }
        settled.append(&mut self.ask(host, config, now));
        settled
    }

    /// The stream has ended while it waited.
    pub fn leave(&mut self, limit: usize, class: usize, stream: u32) {
        if let Some(lane) = self.lanes.get_mut(limit) {
            lane.leave(class, stream);
        }
    }

    /// The provider throttled a request of ours: all stop. Returns what is left of the pause.
    pub fn throttled(
        &mut self,
        host: &impl Host,
        limit: usize,
        pause: Micros,
        id: String,
        now: Micros,
    ) -> Micros {
        let Some(gate) = self.gates.get_mut(limit) else {
            return pause;
        };
        let until = gate.pause(host, pause, now);
        if self.reports.push(limit, now.plus(pause), id) {
            host.count(limit, OfLimit::ReportsDropped);
        }
        until.minus(now)
    }

    fn report(&mut self, host: &impl Host, config: &Config, now: Micros) {
        while let Some(report) = self.reports.due(now) {
            let call = config.policy.limits.get(report.limit).and_then(|limit| {
                let body = calls::throttled(limit, report.until.minus(now), &report.id);
                host.call(limits::wire::THROTTLED_PATH, &body, config.policy.decider_timeout)
            });
            match call {
                Some(token) => {
                    let purpose = Purpose::Report { id: report.id };
                    self.calls.insert(token, Sent { purpose, at: now });
                }
                None => self.reports.answered(&report.id, false, now),
            }
        }
    }
}

fn settle(limit: usize, class: usize, waiter: Waiter, admission: Admission) -> Settled {
    let verdict = match admission {
        Admission::Forward => Verdict::Fallback,
        Admission::Refuse(refused) => Verdict::Refused(refused),
        // Only `without_decider` leads here, and it never asks.
        Admission::Ask => Verdict::Refused(Refused { wait: NO_WAIT, cause: Cause::Fallback }),
    };
    Settled { limit, class, waiter, verdict }
}

fn broken(host: &impl Host, limit: usize) -> Admission {
    host.count(limit, OfLimit::Broken);
    Admission::Refuse(Refused { wait: NO_WAIT, cause: Cause::Fallback })
}

#[cfg(test)]
mod tests;
