//! What the provider saw, asked of the provider: the only figures a comparison may use.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::http::{CallError, Client};

/// A full log of arrivals is some megabytes.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// The simulated provider's own address, not the way that senders take.
#[derive(Debug, Clone)]
pub struct Judge {
    client: Client,
    address: String,
}

/// The part of its report that the lab shows.
#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    pub refused: u64,
    pub accepted: u64,
    pub max_in_any_1s: u64,
    pub suspended_after_s: Option<f64>,
    /// Messages that were accepted more than once, by the `id` in their bodies.
    pub accepted_twice: u64,
    pub windows: Vec<WindowReport>,
    pub by_class: BTreeMap<String, ClassReport>,
}

/// One of the model's quotas.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WindowReport {
    pub kind: String,
    pub limit: u64,
    /// What arrived in any interval of its length; a kind without a length has none.
    pub max_in_any: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ClassReport {
    pub accepted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Arrival {
    pub at_us: u64,
    pub class: String,
    pub status: u16,
}

impl Judge {
    pub fn new(address: &str) -> Self {
        Self { client: Client::default(), address: address.to_owned() }
    }

    /// Lays `change`, a JSON document, over the model as it is.
    pub async fn change_model(&self, change: &str) -> Result<(), CallError> {
        let change = change.to_owned();
        self.client.post(&self.address, "/_sim/model", change, CALL_LIMIT).await.map(drop)
    }

    /// Counters, model and time begin again, from now.
    pub async fn reset(&self) -> Result<(), CallError> {
        self.client.post(&self.address, "/_sim/reset", "", CALL_LIMIT).await.map(drop)
    }

    pub async fn report(&self) -> Result<Report, CallError> {
        self.client.get_json(&self.address, "/_sim/report", CALL_LIMIT).await
    }

    pub async fn arrivals(&self) -> Result<Vec<Arrival>, CallError> {
        self.client.get_json(&self.address, "/_sim/arrivals", CALL_LIMIT).await
    }
}
