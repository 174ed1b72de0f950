//! Where sender designs are run: a provider and the way to it, a Redis for the senders, and Weir's
//! gateways on the same way.
//!
//! Promise: tracks share no process, so several run side by side; on one track, one run at a time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use lab::{Judge, Relay, Site};

use crate::paths;
use crate::stack::{Endpoint, Options, Programs, Stack};

const GATEWAYS: u16 = 2;
const DECIDERS: u16 = 2;
/// The same delays in every track.
const RELAY_SEED: u64 = 7;

pub struct Track {
    pub site: Site,
    /// The provider, and the senders' Redis.
    ground: Stack,
    /// Envoys, deciders and their own Redis.
    weir: Option<Stack>,
    /// Ends with the track.
    _way: Relay,
}

impl Track {
    /// Without a policy it has no gateways. `model` is a JSON document for the provider's
    /// `/_sim/model`; the way's delay varies by up to `jitter`.
    pub async fn start(
        programs: &Programs,
        model: &str,
        jitter: Duration,
        policy: Option<&Path>,
    ) -> Result<Self> {
        let sample = paths::root().join("envoy/policy.yaml");
        let ground = Options {
            gateways: 0,
            deciders: 0,
            redis: true,
            policy: policy.unwrap_or(&sample).to_owned(),
            provider: None,
            decider: None,
            template: paths::root().join("envoy/envoy.yaml"),
            keep_plugin_config: true,
            workers: 1,
            ephemeral: true,
        };
        let stack = Stack::start(&ground, programs).await?;
        let judge = Judge::new(&stack.provider.to_string());
        judge.change_model(model).await?;
        let way = Relay::start(&stack.provider.to_string(), jitter, RELAY_SEED).await?;
        let weir = match policy {
            None => None,
            Some(_) => {
                let provider = Some(Endpoint::loopback(way.address.port()));
                let options = Options {
                    gateways: GATEWAYS,
                    deciders: DECIDERS,
                    provider,
                    keep_plugin_config: false,
                    ..ground
                };
                Some(Stack::start(&options, programs).await?)
            }
        };
        let Some(redis) = stack.redis.clone() else {
            bail!("a stack with Redis has one");
        };
        let gateways = weir.iter().flat_map(|stack| &stack.gateways);
        let site = Site {
            redis,
            judge,
            provider: way.address.to_string(),
            gateways: gateways.map(ToString::to_string).collect(),
        };
        Ok(Self { site, ground: stack, weir, _way: way })
    }

    /// Fails if a process has died: what was measured without it means nothing.
    pub fn check(&mut self) -> Result<()> {
        let mut died = self.ground.newly_ended()?;
        if let Some(weir) = &mut self.weir {
            died.extend(weir.newly_ended()?);
        }
        if !died.is_empty() {
            bail!("{}", died.join("; "));
        }
        Ok(())
    }

    pub async fn stop(self) {
        if let Some(weir) = self.weir {
            weir.stop().await;
        }
        self.ground.stop().await;
    }
}
