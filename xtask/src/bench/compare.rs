//! What is compared with what, and what a ratio is.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;

use super::Subject;
use super::arena::{DECIDE_BODY, GRANTED_HOST, REFUSED_HOST, UNMATCHED_HOST};
use super::load::{Expect, Load, Seen};

/// Callers' connections to the gateway.
const CALLERS: u32 = 64;
/// Connections to the decider.
const GATEWAYS: u32 = 128;
/// What a sender of messages sends.
const MESSAGE: &str = r#"{"to":"+10000000000","text":"Twenty percent off until Sunday."}"#;

pub struct Comparison {
    pub subject: Subject,
    pub what: &'static str,
    pub sides: Vec<Side>,
    pub ratio: Ratio,
    pub aim: Aim,
}

/// One of the things compared.
pub struct Side {
    pub name: &'static str,
    pub at: At,
    pub load: Load,
}

/// Who is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The gateway's listeners, by filter.
    Weir,
    Noop,
    Call,
    /// The deciders, without a gateway.
    DeciderOnRedis,
    DeciderWithoutStore,
}

#[derive(Debug, Clone, Copy)]
pub enum Ratio {
    /// Requests per second of the first side ÷ of the second.
    Throughput,
    /// (p50 of the first − p50 of the second) ÷ (p50 of the third − p50 of the second).
    AddedMedian,
}

/// What a ratio should be. Told, not enforced.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

/// One side in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub per_s: f64,
    #[serde(flatten)]
    pub seen: Seen,
    pub bytes_per_reply: u64,
    /// µs of CPU per request, by process. Empty where it cannot be known.
    pub cpu_us: BTreeMap<String, f64>,
    /// What the weir filter counted meanwhile, where it was loaded.
    pub filter: BTreeMap<String, u64>,
}

/// For each round the figures of each side, in the order of [`Comparison::sides`].
#[derive(Debug, Default)]
pub struct Measured {
    pub rounds: Vec<Vec<Figures>>,
}

pub fn all() -> Vec<Comparison> {
    vec![refused(), granted(), unmatched(), added(), decider()]
}

fn refused() -> Comparison {
    // Without a body: a reply that comes before the body has ended makes Envoy close an HTTP/1
    // connection, and both sides would measure little but new connections.
    let load = Load {
        name: "refused",
        method: "GET",
        expect: Expect::Refusal,
        body: None,
        ..message(REFUSED_HOST, CALLERS)
    };
    Comparison {
        subject: Subject::RefusedVsNoop,
        what: "refused from the gateway's memory ÷ no-op filter and Envoy's direct response",
        sides: sides([("weir", At::Weir), ("noop", At::Noop)], &load),
        ratio: Ratio::Throughput,
        aim: Aim::AtLeast(0.85),
    }
}

fn granted() -> Comparison {
    Comparison {
        subject: Subject::GrantedVsNoopProxied,
        what: "granted through decider and Redis, proxied ÷ no-op filter, proxied",
        sides: sides([("weir", At::Weir), ("noop", At::Noop)], &granted_load()),
        ratio: Ratio::Throughput,
        aim: Aim::AtLeast(0.75),
    }
}

pub fn granted_load() -> Load {
    Load { name: "granted", ..message(GRANTED_HOST, CALLERS) }
}

fn unmatched() -> Comparison {
    Comparison {
        subject: Subject::UnmatchedVsNoop,
        what: "host without a limit, proxied ÷ no-op filter, proxied",
        sides: sides(
            [("weir", At::Weir), ("noop", At::Noop)],
            &Load { name: "unmatched", ..message(UNMATCHED_HOST, CALLERS) },
        ),
        ratio: Ratio::Throughput,
        aim: Aim::AtLeast(0.95),
    }
}

fn added() -> Comparison {
    Comparison {
        subject: Subject::AddedP50VsHttpCall,
        what: "p50 added to one request at a time ÷ p50 added by a bare call to the decider",
        sides: sides(
            [("weir", At::Weir), ("noop", At::Noop), ("call", At::Call)],
            &Load { name: "one-at-a-time", ..message(GRANTED_HOST, 1) },
        ),
        ratio: Ratio::AddedMedian,
        aim: Aim::AtMost(1.25),
    }
}

fn decider() -> Comparison {
    let load = Load {
        name: "decide",
        method: "POST",
        path: "/v1/decide",
        headers: vec![("Host", "weir"), ("Content-Type", "application/json")],
        body: Some(DECIDE_BODY.to_owned()),
        connections: GATEWAYS,
        expect: Expect::Success,
    };
    Comparison {
        subject: Subject::DeciderVsNoStore,
        what: "decider with Redis, everything granted ÷ its endpoint without a store",
        sides: sides([("redis", At::DeciderOnRedis), ("no store", At::DeciderWithoutStore)], &load),
        ratio: Ratio::Throughput,
        aim: Aim::AtLeast(0.70),
    }
}

fn message(host: &'static str, connections: u32) -> Load {
    Load {
        name: "message",
        method: "POST",
        path: "/v1/messages",
        headers: vec![
            ("Host", host),
            ("Content-Type", "application/json"),
            ("x-priority", "marketing"),
        ],
        body: Some(MESSAGE.to_owned()),
        connections,
        expect: Expect::Success,
    }
}

fn sides<const N: usize>(places: [(&'static str, At); N], load: &Load) -> Vec<Side> {
    places.into_iter().map(|(name, at)| Side { name, at, load: load.clone() }).collect()
}

impl Comparison {
    pub fn name(&self) -> String {
        let value = self.subject.to_possible_value();
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Aim {
    pub fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }
}

impl Ratio {
    /// Of one round. `None` if it has no meaning: nothing was added that it could be compared with.
    pub fn of(self, round: &[Figures]) -> Option<f64> {
        let p50 = |place: usize| Some(round.get(place)?.seen.p50_us as f64);
        let (above, below) = match self {
            Self::Throughput => (round.first()?.per_s, round.get(1)?.per_s),
            Self::AddedMedian => (p50(0)? - p50(1)?, p50(2)? - p50(1)?),
        };
        (below > 0.0).then(|| above / below)
    }
}

impl Measured {
    /// One ratio per round: the sides of a round ran seconds apart, under the same disturbance.
    pub fn ratios(&self, ratio: Ratio) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| ratio.of(round)).collect()
    }

    /// Median over the rounds of something of one side.
    pub fn median(&self, side: usize, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> =
            self.rounds.iter().filter_map(|round| of(round.get(side)?)).collect();
        median(&values)
    }
}

pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(upper, *sorted.get(middle.checked_sub(1)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(per_s: u64, p50_us: u64) -> Figures {
        let line = format!(
            r#"{{"requests":{per_s},"duration_us":1000000,"bytes":0,"p50_us":{p50_us},"p99_us":0,"not_2xx":0,"connect":0,"read":0,"write":0,"timeout":0}}"#
        );
        let seen: Seen = serde_json::from_str(&line).unwrap();
        let (cpu_us, filter) = Default::default();
        Figures { per_s: seen.per_s(), seen, bytes_per_reply: 0, cpu_us, filter }
    }

    #[test]
    fn throughput_is_compared_round_by_round() {
        let round = |a, b| vec![figures(a, 0), figures(b, 0)];
        let rounds = vec![round(90, 100), round(40, 50), round(10, 100)];
        let ratios = Measured { rounds }.ratios(Ratio::Throughput);
        assert_eq!(ratios, [0.9, 0.8, 0.1]);
        assert_eq!(median(&ratios), Some(0.8));
    }

    #[test]
    fn added_time_is_what_exceeds_the_noop() {
        let round = [figures(1, 250), figures(1, 100), figures(1, 225)];
        assert_eq!(Ratio::AddedMedian.of(&round), Some(1.2));
        let nothing_added = [figures(1, 250), figures(1, 100), figures(1, 100)];
        assert_eq!(Ratio::AddedMedian.of(&nothing_added), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn names_are_those_of_the_ratios() {
        let names: Vec<String> = all().iter().map(Comparison::name).collect();
        let expected = [
            "refused_vs_noop",
            "granted_vs_noop_proxied",
            "unmatched_vs_noop",
            "added_p50_vs_http_call",
            "decider_vs_no_store",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn an_aim_has_a_direction() {
        assert!(Aim::AtLeast(0.8).is_met(0.8) && !Aim::AtLeast(0.8).is_met(0.79));
        assert!(Aim::AtMost(1.2).is_met(1.2) && !Aim::AtMost(1.2).is_met(1.21));
    }
}
