//! The plugin configuration: the policy document and where to ask.
//!
//! Promise: a [`Config`] that exists is complete and safe; a refused one says why in the words of
//! `weir check`.

use limits::{
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
    pub headroom: Vec<Headroom>,
}

/// The share of the headroom of one gateway, for one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headroom {
    /// `None`: nothing may go.
    pub share: Option<Gcra>,
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
        let headroom = policy.limits.iter().map(|limit| Headroom::of(&policy, limit)).collect();
        Ok(Self { decider: raw.decider, policy, headroom })
    }
}

impl Headroom {
    fn of(policy: &Policy, limit: &Limit) -> Self {
        let rules = Rules::of(limit);
        let slowest = |gcras: &[Gcra]| gcras.iter().map(|gcra| gcra.emission_interval().0).max();
        let share = policy.headroom(limit);
        let target = slowest(&rules.limit).unwrap_or(1).max(1);
        let cap = |own: &Vec<Gcra>| {
            let interval = u128::from(share?.emission_interval().0);
            let scaled = interval.saturating_mul(u128::from(slowest(own)?)).div_ceil(target.into());
            let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
            Some(Gcra::spaced(limits::Micros(scaled.max(share?.emission_interval().0))))
        };
        Self { share, caps: rules.classes.iter().map(cap).collect() }
    }
}
