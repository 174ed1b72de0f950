//! Callers written in Python, with the client library that xtask fetches.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::stack::root;

const LIMIT: Duration = Duration::from_secs(30);

/// Runs a script with `args`; what it prints is JSON.
pub async fn python(script: &str, args: &[&str]) -> Value {
    let tools = root().join("target/tools/python");
    assert!(tools.exists(), "{} is missing: `cargo xtask test` fetches it", tools.display());
    let mut command = Command::new("python3");
    command.arg("-c").arg(script).args(args).env("PYTHONPATH", tools).stdin(Stdio::null());
    // A proxy of this machine is none of the gateway's business.
    command.env("NO_PROXY", "*").kill_on_drop(true);
    let run = tokio::time::timeout(LIMIT, command.output()).await;
    let output = run.expect("the script ends in time").expect("python3 runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}
