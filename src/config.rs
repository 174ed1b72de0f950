//! The plugin configuration: the policy document and where to ask.
//!
//! Promise: a [`Config`] that exists is complete and safe; a refused one says why in the words of
//! `weir check`.

use limits::{
    Micros,
    decision::Rules,
    gcra::Gcra,
    policy::{Limit, Policy, PolicyError},
};
use serde::Deserialize;

/// What [`Config::parse`] refuses.
#[derive(Debug)]
pub enum ConfigError {
    /// Not JSON, or not of the outer shape.
    Shape(serde_json::Error),
    Policy(PolicyError),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shape(error) => write!(f, "plugin configuration: {error}"),
            Self::Policy(error) => write!(f, "{error}"),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    decider: Decider,
    policy: serde_json::Value,
}

/// Where the decider is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decider {
    /// Envoy's name of the cluster.
    pub cluster: String,
    /// The `:authority` of calls to it.
    #[serde(default = "authority")]
    pub authority: String,
}

fn authority() -> String {
    "weir".to_owned()
}

#[derive(Debug, Clone)]
pub struct Config {
    pub decider: Decider,
    pub policy: Policy,
    /// What each limit allows without the decider, in the policy's order.
    pub own: Vec<Own>,
}

/// What one gateway may send of one limit without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Always.
    pub headroom: Share,
    /// While the store keeps it free.
    pub target: Share,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// `None`: nothing may go.
    pub all: Option<Gcra>,
    /// Each class's cap, in the proportion of its cap to the target; `None`: uncapped.
    pub caps: Vec<Option<Gcra>>,
}

impl Config {
    /// Reads the plugin configuration.
    ///
    /// # Errors
    /// What is not JSON of the known shape, and every policy that `weir check` refuses.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let raw: Raw = serde_json::from_slice(bytes).map_err(ConfigError::Shape)?;
        let policy = Policy::parse(&raw.policy).map_err(ConfigError::Policy)?;
        let own = policy.limits.iter().map(|limit| Own::of(&policy, limit)).collect();
        Ok(Self { decider: raw.decider, policy, own })
    }
}

impl Own {
    fn of(policy: &Policy, limit: &Limit) -> Self {
        let rules = Rules::of(limit);
        let target = rules.limit.iter().map(Gcra::emission_interval).max().unwrap_or_default();
        let shares = policy.gateways_max.max(1).into();
        Self {
            headroom: Share::of(&rules, policy.headroom(limit), target),
            target: Share::of(&rules, Some(Gcra::spaced(target.times(shares))), target),
        }
    }
}

impl Share {
    /// `target` is the interval that the classes' own are in proportion to.
    fn of(rules: &Rules, all: Option<Gcra>, target: Micros) -> Self {
        let cap = |own: &Vec<Gcra>| {
            let interval = all?.emission_interval();
            let slowest = own.iter().map(|gcra| gcra.emission_interval().0).max()?;
            let scaled = u128::from(interval.0).saturating_mul(slowest.into());
            let scaled = scaled.div_ceil(target.0.max(1).into());
            Some(Gcra::spaced(Micros(u64::try_from(scaled).unwrap_or(u64::MAX)).max(interval)))
        };
        Self { all, caps: rules.classes.iter().map(cap).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sample;

    fn configuration() -> Value {
        let mut policy = sample::policy();
        policy["limits"][0]["classes"][1]["rates"] = json!([{"target": 45, "per": "1s"}]);
        json!({"decider": {"cluster": "weir"}, "policy": policy})
    }

    fn parse(value: &Value) -> Result<Config, String> {
        Config::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_class_has_its_proportion_of_the_headroom() {
        let own = parse(&configuration()).unwrap().own.remove(0);
        let headroom = own.headroom;
        let share = headroom.all.unwrap().emission_interval();
        assert_eq!(share, Micros(510_001), "100 less 96 in 1.02 s, for two gateways");
        assert_eq!(headroom.caps[0], None);
        let cap = headroom.caps[1].unwrap().emission_interval();
        // Half the target, so twice the interval; emission intervals are rounded up.
        assert!((share.times(2).0 - 100..=share.times(2).0 + 1).contains(&cap.0), "{cap:?}");
    }

    #[test]
    fn a_gateways_share_of_the_target_is_that_of_as_many_as_there_can_be() {
        let own = parse(&configuration()).unwrap().own.remove(0);
        let interval = |gcra: Option<Gcra>| gcra.map(|gcra| gcra.emission_interval());
        assert_eq!(interval(own.target.all), Some(Micros(2 * 11_112)));
        assert_eq!(interval(own.target.caps[1]), Some(Micros(2 * 22_223)));
    }

    #[test]
    fn calls_name_weir_as_their_authority_unless_told_otherwise() {
        let mut value = configuration();
        assert_eq!(parse(&value).unwrap().decider.authority, "weir");
        value["decider"]["authority"] = json!("decider.example");
        assert_eq!(parse(&value).unwrap().decider.authority, "decider.example");
    }

    #[test]
    fn a_refused_policy_is_refused_in_the_words_of_the_policy() {
        let mut value = configuration();
        value["policy"]["limits"][0]["rates"][0]["burst"] = json!(0);
        let error = parse(&value).unwrap_err();
        assert_eq!(error, Policy::parse(&value["policy"]).unwrap_err().to_string());
        assert!(error.starts_with("limits[0].rates[0].burst: "), "{error}");
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for text in ["", "{}", "[]", r#"{"decider":{"cluster":"w"},"policy":{},"more":1}"#] {
            assert!(Config::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
