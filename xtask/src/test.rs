//! `cargo xtask test`: everything that has to hold, in one command and one last line.
//!
//! A step that fails does not keep the others from running: the last line names all that failed.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::{cargo, run, setup, tidy};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// Formatting, lints, sizes, words, paths named in the docs.
    Tidy,
    /// Tests of every crate by itself.
    Unit,
    /// The promises, against real Envoys and a real Redis.
    E2e,
}

#[derive(clap::Args)]
pub struct Args {
    /// Only these steps.
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Only end-to-end tests whose name contains this.
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let setup = setup::all()?;
    let mut failed = Vec::new();
    let mut passed = Vec::new();
    for step in [Step::Tidy, Step::Unit, Step::E2e] {
        if !args.only.is_empty() && !args.only.contains(&step) {
            continue;
        }
        let name = format!("{step:?}").to_lowercase();
        run::say(format!("{name} …"));
        let result = match step {
            Step::Tidy => tidy::check_all(),
            Step::Unit => unit(&setup),
            Step::E2e => end_to_end(&setup, args.filter.as_deref()),
        };
        match result {
            Ok(()) => passed.push(name),
            Err(e) => {
                run::say(format!("{name}: {e:#}"));
                failed.push(name);
            }
        }
    }
    let took = start.elapsed().as_secs();
    if !failed.is_empty() {
        bail!("test: FAILED: {} (after {took} s)", failed.join(", "));
    }
    run::say(format!("test: passed: {} ({took} s)", passed.join(", ")));
    Ok(())
}

/// The filter's library apart: its other test target is the end-to-end one.
fn unit(setup: &setup::Found) -> Result<()> {
    let test = ["test", "--release"];
    let mut all_but_filter = cargo::cargo(&test);
    all_but_filter.args(["--workspace", "--exclude", "weir-filter", "--no-fail-fast"]);
    all_but_filter.envs(setup.browser.as_ref().map(|browser| ("CHROME", browser)));
    let all_but_filter = run::check(&mut all_but_filter);
    let filter = run::check(cargo::cargo(&test).args(["--package", "weir-filter", "--lib"]));
    all_but_filter.and(filter)
}

/// One test at a time: each loads the machine and judges by the clock.
fn end_to_end(setup: &setup::Found, filter: Option<&str>) -> Result<()> {
    let mut command = cargo::cargo(&["test", "--release", "--package", "weir-filter"]);
    command.args(["--test", "e2e", "--"]).args(filter);
    command
        .arg("--test-threads=1")
        .env("ENVOY", &setup.envoy)
        .env("REDIS_SERVER", &setup.redis)
        .env("PYTHONPATH", &setup.python);
    run::check(&mut command)
}
