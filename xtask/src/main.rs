//! `cargo xtask …`: everything a developer runs. Each command first fetches or builds what it
//! needs, so that a fresh machine with Rust needs no preparation.
//!
//! It starts the project's programs and never links them: what is tried here is what is deployed.

mod bench;
mod cargo;
mod demo;
mod lab;
mod mutants;
mod paths;
mod run;
mod setup;
mod stack;
mod test;
mod tidy;
mod track;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Set-up, stack, demo, tests and checks of Weir.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what Weir costs, against filters and deciders that do less; writes target/bench/report.json.
    Bench(bench::Args),
    /// Break the safeguards one by one: is each watched by a test?
    Mutants(mutants::Args),
    /// Fetch or build what the other commands need: the Wasm modules, Envoy, Redis, Python packages, a browser.
    ///
    /// The other commands do the part they need by themselves; this one does all of it.
    Setup,
    /// The evening of the incident with every sender design, and with Weir; writes target/demo/report.html.
    Demo(demo::Args),
    /// Every way in which providers count × every sender design; --write puts it into docs/lab.md.
    Lab(lab::Args),
    /// Check everything: tidy, unit tests, end-to-end tests with real Envoys and a real Redis.
    Test(test::Args),
    /// Check formatting, lints, sizes, words, and that paths named in the docs exist.
    Tidy,
    /// Start the stack and keep it up: Redis, deciders, a simulated provider, gateways.
    Up(up::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Setup => setup::all().map(drop),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Tidy => tidy::check_all(),
        Command::Up(args) => up::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}
