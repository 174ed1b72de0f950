//! The Redis that `--redis` and the tests run: `$REDIS_SERVER`, PATH, or Debian's package.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::apt;
use crate::paths;

pub fn find() -> Result<PathBuf> {
    if let Some(value) = std::env::var_os("REDIS_SERVER") {
        let file = PathBuf::from(value);
        if !paths::is_executable(&file) {
            bail!("REDIS_SERVER={}: not an executable file", file.display());
        }
        return Ok(file);
    }
    let on_path = || paths::on_path("redis-server").or_else(|| paths::on_path("valkey-server"));
    if let Some(file) = on_path() {
        return Ok(file);
    }
    if apt::usable() {
        apt::install(&["redis-server"])?;
        if let Some(file) = on_path() {
            return Ok(file);
        }
    }
    bail!(
        "Redis is missing: install redis-server or valkey-server (`apt-get install redis-server`, \
         `brew install redis`), or set REDIS_SERVER to its path"
    )
}
