//! The judge: what the simulated provider saw.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::http::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::noise::check;

const LIMIT: Duration = Duration::from_secs(5);

pub struct Sim {
    address: String,
    client: Client,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Counts {
    pub arrivals: u64,
    pub accepted: u64,
    pub refused: u64,
    pub max_in_any_1s: u64,
}

#[derive(Debug, Deserialize)]
pub struct Report {
    #[serde(flatten)]
    pub total: Counts,
    pub body_bytes: u64,
    pub by_class: BTreeMap<String, Counts>,
    pub suspended: bool,
    pub elapsed_s: f64,
}

#[derive(Debug, Deserialize)]
pub struct Arrival {
    at_us: u64,
    pub class: String,
    /// What the provider answered; 0 as long as it has not.
    pub status: u16,
}

impl Arrival {
    /// Since the start or the last reset.
    pub fn at(&self) -> Duration {
        Duration::from_micros(self.at_us)
    }
}

/// A request as it reached the provider.
#[derive(Debug, Deserialize)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub body_bytes: u64,
    pub complete: bool,
    pub headers: Vec<(String, String)>,
}

impl Sim {
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned(), client: Client::default() }
    }

    pub async fn report(&self) -> Report {
        self.get("/_sim/report").await
    }

    /// When each request came, since the start or the last reset.
    pub async fn arrivals(&self) -> Vec<Duration> {
        self.log().await.iter().map(Arrival::at).collect()
    }

    /// Each request, in order of arrival.
    pub async fn log(&self) -> Vec<Arrival> {
        self.get("/_sim/arrivals").await
    }

    pub async fn requests(&self) -> Vec<Seen> {
        self.get("/_sim/requests").await
    }

    pub async fn last_request(&self) -> Seen {
        self.requests().await.pop().expect("a request has reached the provider")
    }

    pub async fn reset(&self) {
        self.post("/_sim/reset", "").await;
    }

    pub async fn set(&self, model: Value) {
        self.post("/_sim/model", &model.to_string()).await;
    }

    /// The next `times` answers, whatever the model says.
    pub async fn force(&self, times: u32, status: u16, headers: &[(&str, &str)]) {
        let headers: BTreeMap<_, _> = headers.iter().copied().collect();
        self.set(json!({ "force": { "times": times, "status": status, "headers": headers } }))
            .await;
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        self.client.get_json(&self.address, path, LIMIT).await.expect("the provider's report")
    }

    async fn post(&self, path: &str, body: &str) {
        let answer = self.client.post(&self.address, path, body.to_owned(), LIMIT).await;
        answer.expect("the provider takes the setting");
    }
}

impl Report {
    pub fn of(&self, class: &str) -> Counts {
        self.by_class.get(class).cloned().unwrap_or_default()
    }

    /// The contract: never more than sold, never told to stop. It holds as long as the path's jitter
    /// is within the policy's bound, so a busy machine can break it.
    pub fn within_contract(&self) -> Result<(), String> {
        let total = &self.total;
        let kept = total.max_in_any_1s <= 100 && total.refused == 0 && !self.suspended;
        check(kept, || format!("beyond the contract: {self:#?}"))
    }
}
