//! What a fresh machine lacks is fetched or built here, said aloud, and kept under `target/`.
//! What cannot be fetched ends the command with one sentence that says what to install.

mod apt;
pub mod browser;
pub mod envoy;
pub mod python;
pub mod redis;
pub mod wasm;
pub mod wrk;

use std::path::PathBuf;

use anyhow::Result;

use crate::{cargo, paths, run};

/// What set-up came to, for commands that hand it on.
pub struct Found {
    pub envoy: PathBuf,
    pub redis: PathBuf,
    /// Belongs on `PYTHONPATH`.
    pub python: PathBuf,
    /// For the look at the demo's report.
    pub browser: Option<PathBuf>,
}

pub fn all() -> Result<Found> {
    cargo::build_programs()?;
    wasm::build()?;
    let found = Found {
        envoy: envoy::find()?,
        redis: redis::find()?,
        python: python::requests()?,
        browser: browser::find()?,
    };
    run::say(format!("Envoy: {}", paths::shown(&found.envoy)));
    run::say(format!("Redis: {}", paths::shown(&found.redis)));
    run::say("everything is there");
    Ok(found)
}
