//! cargo-mutants over the pure crate and the filter's decision modules.

use anyhow::Result;

use crate::{cargo, paths, run};

/// The filter's modules that decide something.
const DECIDING: [&str; 12] = [
    "src/calls.rs",
    "src/config.rs",
    "src/exchange.rs",
    "src/fallback.rs",
    "src/gate.rs",
    "src/gate/shared.rs",
    "src/lane.rs",
    "src/record.rs",
    "src/request.rs",
    "src/worker.rs",
    "src/worker/answers.rs",
    "src/worker/upkeep.rs",
];

struct Part {
    package: &'static str,
    /// All of it, if none is named.
    files: &'static [&'static str],
    /// Packages whose tests are run.
    watched_by: &'static str,
    tests: &'static [&'static str],
}

/// What the crate decides is watched by the filter's tests too, the simulation among them; the
/// filter's other test target is the end-to-end one.
const PARTS: [Part; 2] = [
    Part {
        package: "limits",
        files: &[],
        watched_by: "limits,weir-filter",
        tests: &["--lib", "--test", "policies", "--test", "edges"],
    },
    Part { package: "weir-filter", files: &DECIDING, watched_by: "weir-filter", tests: &["--lib"] },
];

/// Of the simulation: all of them would take minutes for each mutant.
const SEEDS: &str = "50";
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
    for Part { package, files, watched_by, tests } in PARTS {
        run::say(format!("generated mutants of {package} …"));
        let mut command = run::command(&program);
        command.args(["mutants", "--package", package, "--jobs", "2", "--no-shuffle"]);
        // Of each mutant's tests: a busy machine is no reason to take one for endless.
        command.args(["--timeout", "120", "--output"]);
        command.arg(output.join(package)).args(files.iter().flat_map(|file| ["--file", file]));
        command.args(["--test-package", watched_by, "--"]).args(tests).env("WEIR_SEEDS", SEEDS);
        std::fs::create_dir_all(output.join(package))?;
        result = result.and(run::check(&mut command));
    }
    result
}
