//! The configuration that `envoy/envoy.yaml` embeds is the one that `envoy/policy.yaml` says.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::stack::{self, Programs};
use crate::{cargo, paths};

pub fn differences() -> Result<Vec<String>> {
    cargo::build_programs()?;
    let rendered = Programs::render(&paths::root().join("envoy/policy.yaml"))?;
    let rendered: Value = serde_json::from_str(&rendered).context("`weir render` prints JSON")?;
    let embedded = stack::weir_configurations(&paths::root().join("envoy/envoy.yaml"))?;
    let mut wrong = Vec::new();
    if embedded.is_empty() {
        wrong.push("envoy/envoy.yaml: has no weir filter".to_owned());
    }
    for text in embedded {
        let same = serde_json::from_str::<Value>(&text).is_ok_and(|value| value == rendered);
        if !same {
            wrong.push(
                "envoy/envoy.yaml: its plugin configuration is not what \
                 `target/release/weir render --policy envoy/policy.yaml filter` prints"
                    .to_owned(),
            );
        }
    }
    Ok(wrong)
}
