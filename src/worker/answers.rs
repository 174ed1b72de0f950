//! What becomes of those who wait when a call is over.

use limits::{
    Micros,
    lease::{self, Duty},
    members::Standing,
};

use super::{Host, NO_WAIT, Purpose, Sent, Settled, Verdict, Worker, full, settle};
use crate::{
    calls,
    config::Config,
    gate::{Cause, Learnt, Refused},
    metrics::OfLimit,
};

const NO_ANSWER: &str = "no usable answer in time";

impl Worker {
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
                Some(answer) => {
                    self.learn(host, limit, &answer, None, now);
                }
                None => self.failed(host, limit, lease::Call::Probe, now, NO_ANSWER),
            },
            Purpose::Duty { limit, duty } => match answer(limit, &[]) {
                Some(answer) => {
                    let since = (duty == Duty::Renew).then_some(at);
                    self.learn(host, limit, &answer, since, now);
                }
                None => self.failed(host, limit, lease::Call::Ask, now, NO_ANSWER),
            },
            Purpose::ReadClock { limit } => match answer(limit, &[]) {
                Some(answer) => {
                    self.learn(host, limit, &answer, None, now);
                    self.again(host, limit, &mut settled);
                }
                None => self.lost(host, limit, now, &mut settled),
            },
            Purpose::Decide { limit, wants, renews } => match answer(limit, &wants) {
                Some(answer) => {
                    let is_void = self.learn(host, limit, &answer, renews.then_some(at), now);
                    if is_void {
                        self.again(host, limit, &mut settled);
                    } else {
                        self.decided(host, limit, &answer, now, &mut settled);
                    }
                }
                None => self.lost(host, limit, now, &mut settled),
            },
        }
        settled.append(&mut self.ask(host, config, now));
        settled
    }

    /// A call for streams was not answered.
    fn lost(&mut self, host: &impl Host, limit: usize, now: Micros, settled: &mut Vec<Settled>) {
        self.failed(host, limit, lease::Call::Ask, now, NO_ANSWER);
        self.release(host, limit, now, settled);
    }

    fn decided(
        &mut self,
        host: &impl Host,
        limit: usize,
        answer: &calls::Answer,
        now: Micros,
        settled: &mut Vec<Settled>,
    ) {
        let late = answer.standing == Standing::Late;
        let was_late = self.late.get_mut(limit).map(|was| std::mem::replace(was, late));
        match (late, was_late) {
            (false, _) => self.settle(host, limit, answer, settled),
            // The store's clock has been read anew meanwhile.
            (true, Some(false)) => self.again(host, limit, settled),
            (true, _) => self.lost(host, limit, now, settled),
        }
    }

    /// Nobody was decided about: all wait for the next call.
    fn again(&mut self, host: &impl Host, limit: usize, settled: &mut Vec<Settled>) {
        let Some(lane) = self.lanes.get_mut(limit) else {
            return;
        };
        for (class, waiter) in lane.clear() {
            if let Err(waiter) = lane.join(class, waiter) {
                host.count(limit, OfLimit::Broken);
                settled.push(full(limit, class, waiter));
            }
        }
    }

    /// True if the answer must not be acted upon: it does not know of a stop.
    fn learn(
        &mut self,
        host: &impl Host,
        limit: usize,
        answer: &calls::Answer,
        renewing_since: Option<Micros>,
        now: Micros,
    ) -> bool {
        let Some(gate) = self.gates.get_mut(limit) else {
            return false;
        };
        let Learnt { recovered, forgotten } = gate.learn(host, answer, renewing_since, now);
        if recovered {
            host.say("the decider answers again");
        }
        if let Some(left) = forgotten {
            host.say("the store has lost its memory; telling it again of the provider's stop");
            let id = format!("{}-again-{:x}", self.name.ids, answer.born.0);
            if self.reports.push(limit, now.plus(left), id) {
                host.count(limit, OfLimit::ReportsDropped);
            }
        }
        forgotten.is_some()
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

    pub(super) fn failed(
        &mut self,
        host: &impl Host,
        limit: usize,
        call: lease::Call,
        now: Micros,
        why: &str,
    ) {
        host.count(limit, OfLimit::CallsFailed);
        if self.gates.get_mut(limit).is_some_and(|gate| gate.failed(host, call, now)) {
            host.count(limit, OfLimit::BreakerOpened);
            host.say(&format!("the decider is unreachable ({why}); sending on the own share"));
        }
    }

    /// Everybody who waits is settled without the decider, on the own share.
    pub(super) fn release(
        &mut self,
        host: &impl Host,
        limit: usize,
        now: Micros,
        settled: &mut Vec<Settled>,
    ) {
        let (Some(gate), Some(lane)) = (self.gates.get_mut(limit), self.lanes.get_mut(limit))
        else {
            return;
        };
        for (class, waiter) in lane.clear() {
            let admission = gate.without_decider(host, class, now);
            settled.push(settle(limit, class, waiter, admission));
        }
    }
}
