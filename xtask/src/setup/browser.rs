//! The browser in which a test looks at the demo's report: `$CHROME`, PATH, macOS's usual place, or
//! Debian's package.
//!
//! Nothing else needs one, so a machine that has none and cannot fetch one goes on, aloud; in CI, where
//! nobody listens, that is a failure.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::apt;
use crate::{paths, run};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const ON_MACOS: &str = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome";
const HOW: &str = "install Chromium or Chrome, or set CHROME to its path";

/// `None` is a check that is left out; it has been said, and CI does not get this far.
pub fn find() -> Result<Option<PathBuf>> {
    let mut found = on_this_machine()?;
    if found.is_none() && apt::usable() {
        if let Err(e) = apt::install(&["chromium"]) {
            run::say(format!("{e:#}"));
        }
        found = on_this_machine()?;
    }
    if found.is_none() {
        missing()?;
    }
    Ok(found)
}

/// # Errors
/// `$CHROME` is set and names no program.
pub fn on_this_machine() -> Result<Option<PathBuf>> {
    if let Some(value) = std::env::var_os("CHROME") {
        let file = PathBuf::from(value);
        if !paths::is_executable(&file) {
            bail!("CHROME={}: not an executable file", file.display());
        }
        return Ok(Some(file));
    }
    let of_macos = || Some(PathBuf::from(ON_MACOS)).filter(|file| paths::is_executable(file));
    Ok(NAMES.into_iter().find_map(paths::on_path).or_else(of_macos))
}

/// Says that the look at the report is left out.
///
/// # Errors
/// In CI.
pub fn missing() -> Result<()> {
    if std::env::var_os("CI").is_some() {
        bail!("a browser is missing: {HOW}");
    }
    // Not `eprintln!`, which libtest keeps to itself when a test passes.
    let line = format!("xtask: SKIPPED: no browser looks at the demo's report; {HOW}");
    let _ = writeln!(std::io::stderr(), "{line}");
    Ok(())
}
