//! What is said to the decider, and what is believed of its answers.
//!
//! Promise: an answer that is not ours (no marker, another status, not our JSON) is no answer. Class
//! names become places in the policy here and nowhere else.

use limits::{
    Micros,
    policy::Limit,
    wire::{Count, DecideReply, DecideRequest, ThrottledRequest},
};

use crate::gate::Known;

/// A decider's answer about one limit, by places in the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub granted: Vec<u64>,
    pub known: Vec<Known>,
    /// What is left of the provider's stop.
    pub penalty: Micros,
}

/// Body of a call for so many requests of each class; of none, it is a probe.
pub fn decide(limit: &Limit, policy: &str, gateway: &str, wants: &[u64]) -> Vec<u8> {
    let asked = limit.classes.iter().zip(wants).filter(|(_, n)| **n > 0);
    let wants = asked.map(|(class, n)| Count { class: class.name.clone(), n: *n }).collect();
    let request = DecideRequest {
        limit: limit.name.clone(),
        policy: policy.to_owned(),
        gateway: gateway.to_owned(),
        wants,
    };
    serde_json::to_vec(&request).unwrap_or_default()
}

pub fn throttled(limit: &Limit, pause: Micros, id: &str) -> Vec<u8> {
    let request =
        ThrottledRequest { limit: limit.name.clone(), pause_us: pause.0, id: id.to_owned() };
    serde_json::to_vec(&request).unwrap_or_default()
}

/// Reads an answer; `None` when it is not one. Never grants more than `wants`.
pub fn read(limit: &Limit, wants: &[u64], body: &[u8]) -> Option<Answer> {
    let reply: DecideReply = serde_json::from_slice(body).ok()?;
    let mut granted = vec![0_u64; limit.classes.len()];
    for count in &reply.granted {
        let place = limit.class(&count.class)?;
        let asked = wants.get(place).copied().unwrap_or(0);
        *granted.get_mut(place)? = count.n.min(asked);
    }
    let known = limit.classes.iter().map(|class| Known {
        wait: Micros(reply.wait_us.get(&class.name).copied().unwrap_or(0)),
        reason: reply.reason.get(&class.name).copied(),
    });
    Some(Answer { granted, known: known.collect(), penalty: Micros(reply.penalty_us) })
}
