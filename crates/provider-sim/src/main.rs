//! `provider-sim`: the simulated provider as a program.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use provider_sim::Server;
use provider_sim::config::{Kind, Settings};
use provider_sim::provider::Provider;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Longest wait for calls in progress once told to stop.
const DRAIN: Duration = Duration::from_secs(3);

const AFTER_HELP: &str = "\
Every request outside /_sim/ is a call: 200 {\"accepted\":true,\"id\":1}, or a refusal.
Its class is the text field `class` of a JSON body, else whichever of `otp` and
`marketing` stands first in the body, else `unknown`.

  GET  /_sim/report           what arrived, was accepted and refused; the fullest second
  GET  /_sim/arrivals         each arrival: at_us, class, status, path, method
  GET  /_sim/requests?last=N  the last N (up to 1000) requests with their headers
  POST /_sim/reset            counters, model state and time start again
  GET  /_sim/model            the options below as JSON
  POST /_sim/model            changes the fields it is given, such as {\"limit\":50}, and
                              {\"force\":{\"times\":2,\"status\":429,\"headers\":{\"retry-after\":\"3\"},
                              \"body\":\"\"}} answers the next two calls so

Durations are written 50ms, 1s, 10m. SIGINT or SIGTERM ends it.

Example: 100 in each second of the provider's clock, a second starting 370 ms after ours
  provider-sim --model fixed --limit 100 --phase 370ms";

/// A provider that throttles and suspends, and reports exactly what reached it.
#[derive(Debug, Parser)]
#[command(name = "provider-sim", version, after_help = AFTER_HELP)]
struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    listen: String,
    /// How the provider counts.
    #[arg(long, value_enum, default_value = "rolling")]
    model: Kind,
    /// Calls accepted per window.
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Length of the window.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "1s")]
    window: Duration,
    /// Start of a fixed window, after the start of the program or the last reset.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "0s")]
    phase: Duration,
    /// Refused calls use up the window too.
    #[arg(long)]
    count_refused: bool,
    /// Status of a refusal.
    #[arg(long, default_value_t = 429)]
    status: u16,
    /// Text of a refusal's Retry-After, sent as it is; `none` sends none.
    #[arg(long, value_name = "TEXT", default_value = "1")]
    retry_after: String,
    /// From the last byte of a request to its reply.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "0s")]
    latency: Duration,
    /// More refusals than this within --suspend-within stop the account; `never` turns it off.
    #[arg(long, value_name = "N", value_parser = parse_suspend_after, default_value = "300")]
    suspend_after: SuspendAfter,
    /// See --suspend-after.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "10m")]
    suspend_within: Duration,
    /// Length of a suspension; its refusals say what is left in Retry-After.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "60m")]
    suspend_for: Duration,
}

#[derive(Debug, Clone, Copy)]
struct SuspendAfter(Option<u32>);

fn parse_suspend_after(text: &str) -> Result<SuspendAfter, String> {
    match text {
        "never" => Ok(SuspendAfter(None)),
        _ => match text.parse() {
            Ok(refusals) => Ok(SuspendAfter(Some(refusals))),
            Err(_) => Err("a number of refusals or `never` is allowed".to_owned()),
        },
    }
}

impl Args {
    fn settings(&self) -> Settings {
        Settings {
            model: self.model,
            limit: self.limit,
            window: self.window,
            phase: self.phase,
            count_refused: self.count_refused,
            status: self.status,
            retry_after: (self.retry_after != "none").then(|| self.retry_after.clone()),
            latency: self.latency,
            suspend_after: self.suspend_after.0,
            suspend_within: self.suspend_within,
            suspend_for: self.suspend_for,
        }
    }
}

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
    let provider = Provider::new(args.settings())?;
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
