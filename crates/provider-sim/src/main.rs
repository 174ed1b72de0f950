//! `provider-sim`: the simulated provider as a program.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use args::Args;
use clap::Parser;
use provider_sim::Server;
use provider_sim::provider::Provider;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

mod args;

/// Longest wait for calls in progress once told to stop.
const DRAIN: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("provider-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(args: &Args) -> anyhow::Result<()> {
    let provider = Provider::new(args.settings()?)?;
    // Before the port is open: who reads "listening" may already send a signal.
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let server = Server::bind(&args.listen, provider)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let addr = server.local_addr().context("address of the listener")?;
    eprintln!("listening on {addr}");

    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(server.run(async {
        // An error means the sender is gone, which is a stop too.
        let _ = stopped.await;
    }));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        served = &mut serving => return served.context("server task")?.context("server"),
    }
    drop(stop);
    match tokio::time::timeout(DRAIN, serving).await {
        Ok(served) => served.context("server task")?.context("server"),
        // Calls that have not ended by now are cut off: an idle sender must not keep us.
        Err(_) => Ok(()),
    }
}
