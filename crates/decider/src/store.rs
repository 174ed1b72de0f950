//! Where the state of the limits lives.
//!
//! Promise: every store answers like [`limits::decision::decide`] on its own clock; one test suite
//! runs on all of them. A store never waits for a broken connection to come back: it fails at once
//! and mends itself meanwhile. A call that is dropped half-way may still have been carried out;
//! what it granted is then lost, never granted twice.

pub mod memory;
pub mod redis;

use std::{future::Future, pin::Pin, time::Duration};

use limits::{
    Micros,
    decision::{Rules, Share, State},
    members::{Ask, Standing},
    policy::Policy,
};

/// One limit as a store needs it; its place in the policy is its index everywhere.
#[derive(Debug, Clone)]
pub struct Account {
    pub name: String,
    /// Names of the classes, in the policy's order.
    pub classes: Vec<String>,
    pub rules: Rules,
}

/// What one call decided for one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The store's clock when it decided.
    pub now: Micros,
    /// What is left of the provider's stop.
    pub penalty: Micros,
    /// When the store's memory of the limit began.
    pub born: Micros,
    /// One per class, in the policy's order.
    pub shares: Vec<Share>,
    /// One per ask.
    pub standings: Vec<Standing>,
}

/// A limit's state as it stands, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub now: Micros,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store did not answer within {0:?}")]
    Late(Duration),
    #[error("the store refused the call: {0}")]
    Refused(String),
}

pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// `limit` is always an index into the accounts that the store was made with.
pub trait Store: Send + Sync {
    /// Decides for all asks together.
    fn decide<'a>(&'a self, limit: usize, asks: &'a [Ask]) -> Call<'a, Decision>;

    /// Stops everyone for `pause` from now, unless a longer stop stands or the report `id` is known
    /// already. Returns what is left of the stop.
    fn throttled<'a>(&'a self, limit: usize, pause: Micros, id: &'a str) -> Call<'a, Micros>;

    /// Reads without changing anything.
    fn look(&self, limit: usize) -> Call<'_, Snapshot>;

    fn ping(&self) -> Call<'_, ()>;
}

/// Waits for a call no longer than `deadline`.
///
/// # Errors
/// What the store said, or that it was late.
pub async fn within<T>(deadline: Duration, call: Call<'_, T>) -> Result<T, StoreError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Late(deadline)),
    }
}

/// The accounts of a policy, in its order.
pub fn accounts(policy: &Policy) -> Vec<Account> {
    let account = |limit: &limits::policy::Limit| Account {
        name: limit.name.clone(),
        classes: limit.classes.iter().map(|class| class.name.clone()).collect(),
        rules: Rules::of(limit),
    };
    policy.limits.iter().map(account).collect()
}

impl StoreError {
    /// Short, for a metric's label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Late(_) => "late",
            Self::Refused(_) => "refused",
        }
    }
}
