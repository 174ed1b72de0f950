//! The load generator of `bench`: `wrk` on PATH, or Debian's package.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::apt;
use crate::paths;

pub fn find() -> Result<PathBuf> {
    if let Some(file) = paths::on_path("wrk") {
        return Ok(file);
    }
    if apt::usable() {
        apt::install(&["wrk"])?;
        if let Some(file) = paths::on_path("wrk") {
            return Ok(file);
        }
    }
    bail!("wrk is missing: install it (`apt-get install wrk`, `brew install wrk`)")
}
