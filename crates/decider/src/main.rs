//! The `weir` program. Exit codes: 0 done, 1 failed while running, 2 told something it cannot use.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use decider::{check, document::DocumentError, render, serve, settings::SettingsError};

/// Keeps many senders of one provider account under its contract.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the decider that gateways ask
    #[command(after_help = SERVE_HELP)]
    Serve(decider::settings::Options),
    /// Says whether a policy is safe, and what the provider can see under it
    Check(check::Check),
    /// Prints what other programs need of a policy
    Render(render::Render),
}

const SERVE_HELP: &str = "\
Paths:
  POST /v1/decide, /v1/throttled   for gateways
  GET  /v1/limits/NAME             a limit's state, for people
  GET  /healthz, /readyz           it runs; its store answers, too
  GET  /metrics                    OpenMetrics

The log goes to standard error; WEIR_LOG=debug says more (trace, debug, info, warn, error).
SIGTERM or SIGINT ends it; exit codes: 0 ended so, 1 failed, 2 told something it cannot use.

Examples:
  weir serve --policy policy.yaml
  weir serve --policy policy.yaml --listen 0.0.0.0:8080 --store redis://redis:6379/0";

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(options) => serve::run(options),
        Command::Check(check) => check::run(&check),
        Command::Render(render) => render::run(&render),
    };
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{error:#}");
    let told = error.is::<SettingsError>() || error.is::<DocumentError>();
    ExitCode::from(if told { 2 } else { 1 })
}
