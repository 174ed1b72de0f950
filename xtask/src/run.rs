//! Running other programs: what is run is said, an answer is bounded in time, and the environment
//! that the outer `cargo` set for xtask does not leak into an inner one.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::paths;

/// What a person has set on purpose and an inner cargo must keep.
const KEPT_CARGO_VARIABLES: [&str; 6] =
    ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_TERM_"];

pub fn say(line: impl std::fmt::Display) {
    eprintln!("xtask: {line}");
}

/// A command in the repository's root, its environment cleared of what the outer cargo added:
/// `CARGO_*`, `RUSTC*`, `RUSTFLAGS` would bend the inner build or force needless rebuilds.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(paths::root());
    for (key, _) in std::env::vars_os() {
        let Some(name) = key.to_str() else { continue };
        let of_cargo = name == "CARGO"
            || name.starts_with("CARGO_")
            || name.starts_with("RUSTC")
            || matches!(name, "RUSTFLAGS" | "RUSTDOCFLAGS" | "RUST_RECURSION_COUNT");
        if of_cargo && !KEPT_CARGO_VARIABLES.iter().any(|k| name.starts_with(k)) {
            command.env_remove(&key);
        }
    }
    command
}

/// Runs it with its output on stderr (stdout belongs to xtask's own answers).
pub fn check(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start {}", name_of(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", name_of(command));
    }
    Ok(())
}

/// Runs it and gives its stdout, trimmed.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", name_of(command)))?;
    if !out.status.success() {
        bail!(
            "{} failed ({}): {}",
            name_of(command),
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Like [`check`], but ends it after `limit`: for downloads that a closed network lets hang.
pub fn check_within(limit: Duration, command: &mut Command) -> Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .spawn()
        .with_context(|| format!("cannot start {}", name_of(command)))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("{} failed ({status})", name_of(command));
            }
            return Ok(());
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("{} did not end within {} s", name_of(command), limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The program and its first arguments, enough to recognise it by.
fn name_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut name =
        program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for argument in command.get_args().take(3) {
        name.push(' ');
        name.push_str(&argument.to_string_lossy());
    }
    format!("`{name}`")
}

pub fn is_root() -> bool {
    // SAFETY: geteuid reads one number and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
