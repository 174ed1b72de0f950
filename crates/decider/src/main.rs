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
    Serve(decider::settings::Options),
    /// Says whether a policy is safe, and what the provider can see under it
    Check(check::Check),
    /// Prints what other programs need of a policy
    Render(render::Render),
}

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
