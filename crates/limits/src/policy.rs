//! The one policy document, validated.
//!
//! Promise: a [`Policy`] that exists can be obeyed safely. [`Policy::parse`] is the only way to make
//! one; it refuses what cannot keep the contract and everything it does not know, and says field,
//! value and what would be allowed. Filter and decider parse the same document with the same code,
//! so they refuse the same things in the same words.

mod reader;
mod rules;

use serde_json::Value;

use crate::{gcra::Rate, members::Terms, units::Micros, worst};

/// A refused document: where, and what would be allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct PolicyError {
    /// Like `limits[0].rates[1].burst`.
    pub path: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Identifies the document's content: 16 hexadecimal digits.
    pub hash: String,
    /// The most gateway processes that can run at once, 1 to 1000.
    pub gateways_max: u32,
    /// How long a gateway waits for a decision, 5 ms to 5 s.
    pub decider_timeout: Micros,
    /// Spread of the delay between a decision and its arrival at the provider, 0 to 1 s.
    pub path_jitter: Micros,
    /// At least one; no two match the same request.
    pub limits: Vec<Limit>,
}

/// One shared account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub name: String,
    pub matches: Match,
    /// What the provider sold; at least one window.
    pub contract: Vec<Window>,
    /// What we aim for; at least one, and all must pass.
    pub rates: Vec<Rate>,
    pub priority: Priority,
    /// In order of precedence, at least one.
    pub classes: Vec<Class>,
    pub throttle: Throttle,
    /// Of the leased fallback; `None`: a gateway without the decider has its headroom only.
    pub terms: Option<Terms>,
    /// Why the worst case may exceed the contract, if someone wrote so.
    pub unsafe_reason: Option<String>,
}

/// Which requests belong to the limit: host and path and method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Lower case, without port; at least one.
    pub hosts: Vec<String>,
    /// Empty: every path.
    pub path_prefixes: Vec<String>,
    /// Empty: every method.
    pub methods: Vec<String>,
}

/// `requests` in any span `per`, however the provider lays it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub requests: u32,
    pub per: Micros,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority {
    /// Lower case.
    pub header: String,
    /// Index into [`Limit::classes`].
    pub default: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    /// Header values that claim the class, lower case.
    pub values: Vec<String>,
    /// Who may claim it, as SPIFFE URIs; empty: anyone.
    pub principals: Vec<String>,
    /// The class's own caps; may be empty.
    pub rates: Vec<Rate>,
}

/// What the provider's refusals look like and what they are worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throttle {
    pub statuses: Vec<u16>,
    /// When the provider names no usable time.
    pub default_pause: Micros,
    /// Longer demands count as this.
    pub max_pause: Micros,
}

impl Policy {
    /// Turns the document (YAML or JSON, as a value) into a policy.
    ///
    /// # Errors
    /// The first thing that is unknown, missing, out of range or unsafe.
    pub fn parse(document: &Value) -> Result<Self, PolicyError> {
        rules::policy(document)
    }

    pub fn limit(&self, name: &str) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.name == name)
    }

    /// See [`worst::headroom`].
    pub fn headroom(&self, limit: &Limit) -> Option<crate::gcra::Gcra> {
        worst::headroom(&limit.rates, &limit.contract, self.path_jitter, self.gateways_max)
    }
}

impl Limit {
    /// Index of the class of that name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }
}

/// FNV-1a, 64 bit (Fowler, Noll, Vo; draft-eastlake-fnv) over the document with sorted keys. It tells
/// documents apart; it protects nothing.
fn hash(document: &Value) -> String {
    let text = document.to_string();
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}
