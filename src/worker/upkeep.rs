//! What a worker does without being asked: probes, leases, reports, calls that were never answered.

use limits::{Micros, lease};

use super::{Host, NO_WAY, Purpose, Sent, Settled, Worker};
use crate::{calls, config::Config, metrics::OfLimit};

/// How long after its time-out a call counts as lost: Envoy always answers, so this only guards
/// against the case that it does not.
const WATCHDOG: Micros = Micros::from_millis(50);
impl Worker {
    /// Called every few milliseconds: probes, leases, reports, and calls that Envoy never answered.
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
        for limit in 0..self.gates.len() {
            self.keep_up(host, config, limit, now);
        }
        settled.append(&mut self.ask(host, config, now));
        settled
    }

    /// Probes, and what a lease asks of its holder.
    fn keep_up(&mut self, host: &impl Host, config: &Config, limit: usize, now: Micros) {
        let Some(gate) = self.gates.get_mut(limit) else {
            return;
        };
        gate.touch(host, now);
        let (purpose, owed) = if gate.claim_probe(host, now) {
            (Purpose::Probe { limit }, None)
        } else if let Some((duty, deadline)) = gate.claim_duty(host, now) {
            (Purpose::Duty { limit, duty }, Some((duty, deadline)))
        } else {
            return;
        };
        host.count(limit, OfLimit::Probes);
        let hash = &config.policy.hash;
        let call = config.policy.limits.get(limit).and_then(|policy| {
            let body = calls::decide(policy, hash, &self.name.gateway, &[], owed);
            host.call(limits::wire::DECIDE_PATH, &body, config.policy.decider_timeout)
        });
        match call {
            Some(token) => {
                self.calls.insert(token, Sent { purpose, at: now });
            }
            None => {
                let call = match purpose {
                    Purpose::Probe { .. } => lease::Call::Probe,
                    _ => lease::Call::Ask,
                };
                self.failed(host, limit, call, now, NO_WAY);
            }
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

    pub(super) fn report(&mut self, host: &impl Host, config: &Config, now: Micros) {
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
