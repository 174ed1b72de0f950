//! The providers of the matrix, by the names that `provider-sim` gives them, and the policy with
//! which Weir is run against each: what a careful operator would write after reading the contract.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::paths;

/// From here on, models are run with the windows and stalls that they have by name.
const WHOLE_S: u64 = 60;

pub struct Model {
    /// Of `provider-sim --model`.
    pub name: &'static str,
    /// How it counts, for the table.
    pub counts: &'static str,
    /// JSON for `/_sim/model`.
    set: &'static str,
    /// The same in a form that shows within seconds, if it would not otherwise.
    short: Option<Short>,
    policy: Policy,
    /// What Weir would need to keep it, where that is not built yet.
    pub not_built: Option<&'static str>,
}

struct Short {
    counts: &'static str,
    set: &'static str,
}

enum Policy {
    /// envoy/policy.yaml: target 90, burst 5, marketing 70.
    Sample,
    /// The sample with another contract, target and burst; marketing keeps its 70, with this burst.
    Other { contract: &'static [(u32, &'static str)], target: u32, burst: u32 },
}

const fn sample(name: &'static str, counts: &'static str, set: &'static str) -> Model {
    Model { name, counts, set, short: None, policy: Policy::Sample, not_built: None }
}

pub static ALL: [Model; 11] = [
    sample("rolling", "100 in any second", r#"{"model":"rolling"}"#),
    sample("fixed", "100 per second, beginning with ours", r#"{"model":"fixed","phase":"0s"}"#),
    sample(
        "fixed-phase",
        "100 per second, beginning 0.37 s after ours",
        r#"{"model":"fixed-phase"}"#,
    ),
    sample("fixed-jump", "100 per second, jumping 0.37 s each 2 s", r#"{"model":"fixed-jump"}"#),
    Model {
        policy: Policy::Other { contract: &[(10, "100ms")], target: 75, burst: 1 },
        ..sample("per-100ms", "10 in any 100 ms", r#"{"model":"per-100ms"}"#)
    },
    sample("leaky", "leaky bucket, 100/s, capacity 10", r#"{"model":"leaky"}"#),
    sample("token-bucket", "bucket of 100 that fills with 100/s", r#"{"model":"token-bucket"}"#),
    sample(
        "count-refused",
        "100 in any second, refused calls count",
        r#"{"model":"count-refused"}"#,
    ),
    Model {
        short: Some(Short {
            counts: "100 in any second and 417 in any 5 s (5000 per minute, shortened)",
            set: r#"{"model":"custom","windows":[{"kind":"rolling","limit":100,"window":"1s"},{"kind":"rolling","limit":417,"window":"5s"}]}"#,
        }),
        policy: Policy::Other {
            contract: &[(100, "1s"), (417, "5s"), (5000, "1m")],
            target: 80,
            burst: 5,
        },
        ..sample("minute", "100 in any second and 5000 in any minute", r#"{"model":"minute"}"#)
    },
    Model {
        short: Some(Short {
            counts: "100 in any second, counted when worked off, stalled 1.5 s at 3 s",
            set: r#"{"model":"completion","stall":{"every":"3s","for":"1500ms"}}"#,
        }),
        not_built: Some("concurrency leases"),
        ..sample(
            "completion",
            "100 in any second, counted when worked off, stalled 1.5 s each 20 s",
            r#"{"model":"completion"}"#,
        )
    },
    Model {
        not_built: Some("concurrency leases"),
        ..sample(
            "concurrency",
            "20 at the same time, work slows from 80 to 400 ms",
            r#"{"model":"concurrency"}"#,
        )
    },
];

pub fn parse(name: &str) -> Result<&'static Model, String> {
    let named = ALL.iter().find(|model| model.name == name);
    named.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|model| model.name).collect();
        format!("one of {} is allowed", names.join(", "))
    })
}

impl Model {
    pub fn settings(&self, seconds: u64) -> &'static str {
        self.shortened(seconds).map_or(self.set, |short| short.set)
    }

    pub fn counts(&self, seconds: u64) -> &'static str {
        self.shortened(seconds).map_or(self.counts, |short| short.counts)
    }

    /// What Weir aims at there, where it is not what the sample policy says.
    pub fn aim(&self) -> Option<String> {
        match &self.policy {
            Policy::Sample => None,
            Policy::Other { target, burst, .. } => {
                Some(format!("target {target}/s, burst {burst}"))
            }
        }
    }

    fn shortened(&self, seconds: u64) -> Option<&Short> {
        self.short.as_ref().filter(|_| seconds < WHOLE_S)
    }

    /// The file that deciders and gateways read.
    pub fn policy(&self) -> Result<PathBuf> {
        let sample = paths::root().join("envoy/policy.yaml");
        let Policy::Other { contract, target, burst } = &self.policy else {
            return Ok(sample);
        };
        let text = std::fs::read_to_string(&sample)?;
        let mut policy: Value = serde_saphyr::from_str(&text).context("envoy/policy.yaml")?;
        let limit = &mut policy["limits"][0];
        let windows =
            contract.iter().map(|(requests, per)| json!({"requests": requests, "per": per}));
        limit["contract"] = windows.collect();
        limit["rates"] = json!([{"target": target, "per": "1s", "burst": burst}]);
        limit["classes"][1]["rates"][0]["burst"] = json!(burst);
        let dir = paths::target("lab");
        std::fs::create_dir_all(&dir)?;
        let file = dir.join(format!("{}.yaml", self.name));
        std::fs::write(&file, serde_saphyr::to_string(&policy)?)?;
        Ok(file)
    }
}
