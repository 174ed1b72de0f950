//! cargo-mutants over the pure crate and the filter's decision modules.

use anyhow::Result;

use crate::{cargo, paths, run};

/// The filter's modules that decide something.
const DECIDING: [&str; 8] = [
    "src/config.rs",
    "src/exchange.rs",
    "src/fallback.rs",
    "src/gate.rs",
    "src/lane.rs",
    "src/record.rs",
    "src/request.rs",
    "src/worker.rs",
];
/// The release this list of accepted survivors was made with.
const VERSION: &str = "27.1.0";

pub fn run() -> Result<()> {
    let root = paths::tools("cargo-mutants");
    let program = root.join("bin/cargo-mutants");
    if !paths::is_executable(&program) {
        run::say(format!("installing cargo-mutants {VERSION} into {}", paths::shown(&root)));
        let install = ["install", "--locked", "cargo-mutants", "--version", VERSION, "--root"];
        run::check(cargo::cargo(&install).arg(&root))?;
    }
    let output = paths::target("mutants");
    std::fs::create_dir_all(&output)?;
    let mut result = Ok(());
    // The filter's other test target is the end-to-end one.
    for (package, files, tests) in
        [("limits", &[][..], "--tests"), ("weir-filter", &DECIDING[..], "--lib")]
    {
        run::say(format!("generated mutants of {package} …"));
        let mut command = run::command(&program);
        command.args(["mutants", "--package", package, "--jobs", "2", "--no-shuffle", "--output"]);
        command.arg(output.join(package)).args(files.iter().flat_map(|file| ["--file", file]));
        command.args(["--", tests]);
        std::fs::create_dir_all(output.join(package))?;
        result = result.and(run::check(&mut command));
    }
    result
}
