//! What a fresh machine lacks is fetched or built here, said aloud, and kept under `target/`.
//! What cannot be fetched ends the command with one sentence that says what to install.

mod apt;
pub mod envoy;
pub mod python;
pub mod redis;
pub mod wasm;

use anyhow::Result;

use crate::{cargo, paths, run};

pub fn all() -> Result<()> {
    cargo::build_programs()?;
    wasm::build()?;
    let envoy = envoy::find()?;
    let redis = redis::find()?;
    python::requests()?;
    run::say(format!("Envoy: {}", paths::shown(&envoy)));
    run::say(format!("Redis: {}", paths::shown(&redis)));
    run::say("everything is there");
    Ok(())
}
