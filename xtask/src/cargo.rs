//! The inner cargo: the project's native programs.

use anyhow::Result;

use crate::run;

/// The toolchain's own cargo, into the `target/` that xtask itself was built in.
pub fn cargo(arguments: &[&str]) -> std::process::Command {
    let mut command = run::command("cargo");
    command.args(arguments);
    command
}

/// Builds the programs that the stack consists of; nothing happens if they are up to date.
pub fn build_programs() -> Result<()> {
    run::check(&mut cargo(&[
        "build",
        "--release",
        "--package",
        "decider",
        "--package",
        "provider-sim",
    ]))
}
