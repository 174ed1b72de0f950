//! What a bench needs beside the usual stack.

use std::path::Path;

use anyhow::Result;
use lab::http::Client;
use serde_json::Value;

use super::{Endpoint, PROBE_LIMIT, Stack};

impl Stack {
    /// One more decider, on a store of its own choice; no gateway asks it.
    pub async fn add_decider(
        &mut self,
        name: &str,
        weir: &Path,
        policy: &Path,
        store: &str,
    ) -> Result<Endpoint> {
        let at = Endpoint::loopback(self.ports.free()?);
        self.start_decider(name, &at, weir, policy, store)?;
        let (client, address) = (Client::default(), at.to_string());
        self.wait_until_ready(name, async || {
            client.get(&address, "/readyz", PROBE_LIMIT).await.is_ok()
        })
        .await?;
        Ok(at)
    }

    /// Names and ids of all processes.
    pub fn pids(&self) -> Vec<(String, u32)> {
        self.children.iter().map(|child| (child.name.clone(), child.pid)).collect()
    }
}

/// An Envoy configuration as a template for gateways.
pub fn read_template(file: &Path) -> Result<Value> {
    super::envoy_config::read(file)
}
