//! rustfmt and clippy.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{cargo, run};

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(120);

pub fn format_and_lint() -> Result<()> {
    let format = with_tool("fmt", "rustfmt", || {
        run::check(&mut cargo::cargo(&["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
    });
    let lint = with_tool("clippy", "clippy", || {
        run::check(
            cargo::cargo(&["clippy", "--release", "--workspace", "--all-targets"])
                .args(["--", "--deny", "warnings"]),
        )
    });
    format.and(lint)
}

/// A minimal Rust installation lacks them. Where they cannot be fetched the check is left out
/// aloud, and in CI, where nobody listens, that is a failure.
fn with_tool(name: &str, component: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    let is_there = || run::output(&mut cargo::cargo(&[name, "--version"])).is_ok();
    if !is_there() {
        run::say(format!("fetching {component} (rustup component add)"));
        let add = run::check_within(
            DOWNLOAD_LIMIT,
            run::command("rustup").args(["component", "add", component]),
        );
        if let Err(e) = add {
            run::say(format!("{e:#}"));
        }
    }
    if is_there() {
        return check();
    }
    if std::env::var_os("CI").is_some() {
        bail!("{component} is missing: install it with `rustup component add {component}`");
    }
    run::say(format!("SKIPPED: {component} is missing"));
    Ok(())
}
