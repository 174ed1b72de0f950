//! `weir render`: what other programs need of the policy, from the one file.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::document;

#[derive(Debug, Args)]
pub struct Render {
    /// The policy file (YAML or JSON)
    #[arg(long, env = "WEIR_POLICY", value_name = "FILE")]
    policy: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The plugin configuration of the Envoy filter, as JSON
    Filter {
        /// Envoy cluster that leads to the deciders
        #[arg(long, value_name = "NAME", default_value = "weir")]
        cluster: String,
        /// Host header of the calls to it
        #[arg(long, value_name = "HOST", default_value = "weir")]
        authority: String,
    },
}

/// # Errors
/// The policy is refused.
pub fn run(render: &Render) -> anyhow::Result<()> {
    let document =
        document::read(&render.policy).with_context(|| render.policy.display().to_string())?;
    let What::Filter { cluster, authority } = &render.what;
    let configuration = filter(cluster, authority, &document.value);
    document::print(&format!("{configuration:#}\n")).context("cannot print")
}

/// Keys come out sorted, so the same policy always gives the same text.
pub fn filter(cluster: &str, authority: &str, policy: &Value) -> Value {
    json!({
        "decider": { "cluster": cluster, "authority": authority },
        "policy": policy,
    })
}
