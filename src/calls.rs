//! What is said to the decider, and what is believed of its answers.
//!
//! Promise: an answer that is not ours (no marker, another status, not our JSON) is no answer. Class
//! names become places in the policy here and nowhere else.

use limits::{
    Micros,
    lease::Duty,
    members::Standing,
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
    /// The store's clock.
    pub now: Micros,
    /// When its memory began.
    pub born: Micros,
    pub standing: Standing,
}

/// Body of a call for so many requests of each class; of none, it is a probe. With a duty, and its
/// deadline on the store's clock, it renews the gateway's lease or gives it back.
pub fn decide(
    limit: &Limit,
    policy: &str,
    gateway: &str,
    wants: &[u64],
    duty: Option<(Duty, Micros)>,
) -> Vec<u8> {
    let asked = limit.classes.iter().zip(wants).filter(|(_, n)| **n > 0);
    let wants = asked.map(|(class, n)| Count { class: class.name.clone(), n: *n }).collect();
    let request = DecideRequest {
        limit: limit.name.clone(),
        policy: policy.to_owned(),
        gateway: gateway.to_owned(),
        deadline_us: duty.map(|(_, deadline)| deadline.0),
        leaves: matches!(duty, Some((Duty::Leave, _))),
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
    Some(Answer {
        granted,
        known: known.collect(),
        penalty: Micros(reply.penalty_us),
        now: Micros(reply.now_us),
        born: Micros(reply.born_us),
        standing: reply.standing,
    })
}

#[cfg(test)]
pub mod tests {
    use limits::{decision::Reason, policy::Policy};
    use serde_json::json;

    use super::*;
    use crate::sample;

    /// The limit of [`sample::policy`].
    pub fn limit() -> Limit {
        Policy::parse(&sample::policy()).unwrap().limits.remove(0)
    }

    #[test]
    fn only_classes_that_want_something_are_asked_for() {
        let body: DecideRequest =
            serde_json::from_slice(&decide(&limit(), "h", "gw", &[0, 3], None)).unwrap();
        assert_eq!(body.wants, [Count { class: "marketing".into(), n: 3 }]);
        let probe: DecideRequest =
            serde_json::from_slice(&decide(&limit(), "h", "gw", &[], None)).unwrap();
        assert_eq!((probe.wants, probe.deadline_us), (vec![], None));
    }

    #[test]
    fn an_answer_is_read_by_places() {
        let body = json!({
            "now_us": 1, "granted": [{"class": "marketing", "n": 2}],
            "wait_us": {"marketing": 14}, "reason": {"marketing": "class_rate"}, "penalty_us": 5,
            "born_us": 7, "standing": "member",
        });
        let answer = read(&limit(), &[1, 2], body.to_string().as_bytes()).unwrap();
        assert_eq!(answer.granted, [0, 2]);
        assert_eq!(answer.known[1], Known { wait: Micros(14), reason: Some(Reason::ClassRate) });
        assert_eq!(answer.penalty, Micros(5));
        let told = (answer.now, answer.born, answer.standing);
        assert_eq!(told, (Micros(1), Micros(7), Standing::Member));
    }

    #[test]
    fn nobody_is_granted_more_than_was_asked() {
        let body = json!({
            "now_us": 1, "granted": [{"class": "otp", "n": 9}], "wait_us": {}, "reason": {}, "penalty_us": 0,
            "born_us": 7, "standing": "guest",
        });
        let answer = read(&limit(), &[1, 2], body.to_string().as_bytes()).unwrap();
        assert_eq!(answer.granted, [1, 0]);
    }

    #[test]
    fn what_is_not_ours_is_no_answer() {
        let unknown = json!({
            "now_us": 1, "granted": [{"class": "vip", "n": 1}], "wait_us": {}, "reason": {}, "penalty_us": 0,
            "born_us": 7, "standing": "guest",
        });
        for body in ["", "<html>", "{}", "[]", "{\"granted\":\"all\"}", &unknown.to_string()] {
            assert_eq!(read(&limit(), &[1, 1], body.as_bytes()), None, "{body}");
        }
    }
}
