//! Where things lie. All that is fetched or built stays under `target/`: deleting it undoes set-up.

use std::path::{Path, PathBuf};

/// The repository's root. The path at build time is right: xtask is always built in its own tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies in the repository")
}

pub fn target(below: &str) -> PathBuf {
    root().join("target").join(below)
}

/// What was fetched from elsewhere, and notes on what could not be.
pub fn tools(below: &str) -> PathBuf {
    target("tools").join(below)
}

/// A program of this workspace as `cargo build --release` leaves it.
pub fn program(name: &str) -> PathBuf {
    target("release").join(name)
}

pub fn wasm_module(name: &str) -> PathBuf {
    target("wasm").join(name).with_extension("wasm")
}

/// The path as a person in the repository would type it.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The first file of this name on `PATH` that may be executed.
pub fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
