//! Debian's and Ubuntu's packages, for root on machines that have nothing else.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{paths, run};

/// A mirror that does not answer must not hang the set-up for ever.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);

/// True if packages can be installed without asking anybody.
pub fn usable() -> bool {
    run::is_root() && paths::on_path("apt-get").is_some()
}

pub fn install(packages: &[&str]) -> Result<()> {
    run::say(format!("installing with apt-get: {}", packages.join(", ")));
    // A stale package list is the usual reason for a failed install; a failed update is not fatal,
    // the packages may be known already.
    let updated = run::check_within(INSTALL_LIMIT, apt_get().arg("update"));
    run::check_within(
        INSTALL_LIMIT,
        apt_get().args(["install", "-y", "--no-install-recommends"]).args(packages),
    )
    .with_context(|| match updated {
        Ok(()) => "apt-get could not install".to_owned(),
        Err(e) => format!("apt-get could not install, and before that could not update ({e})"),
    })
}

fn apt_get() -> std::process::Command {
    let mut command = run::command("apt-get");
    command.arg("-q").env("DEBIAN_FRONTEND", "noninteractive");
    command
}
