//! `cargo xtask up`: the stack stays up until Ctrl-C or SIGTERM.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::value_parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::stack::{Endpoint, Options, Programs, Stack};
use crate::{paths, run};

const LOOK_AFTER_CHILDREN_EVERY: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct Args {
    /// Envoy gateways, on ports 10000, 10001 … (admin 9901, 9902 …).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=32))]
    gateways: u16,
    /// Deciders, on ports 8080, 8081 …; gateway i asks decider i mod N.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=32))]
    deciders: u16,
    /// Keep the state in a real Redis instead of the decider's memory.
    #[arg(long)]
    redis: bool,
    /// The policy of deciders and gateways [default: envoy/policy.yaml].
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Use this provider instead of starting the simulated one on port 9000.
    #[arg(long, value_name = "HOST:PORT")]
    provider: Option<Endpoint>,
    /// Use this decider instead of starting any.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "deciders")]
    decider: Option<Endpoint>,
    /// Envoy's configuration [default: envoy/envoy.yaml]. The address of its listener `egress`,
    /// the endpoints of its clusters `weir` and `provider`, its admin port and its weir filter's
    /// configuration are replaced; other listeners stay, so give them ports of their own.
    #[arg(long, value_name = "TEMPLATE")]
    envoy: Option<PathBuf>,
    /// Leave the weir filter's configuration in the template as it is.
    #[arg(long)]
    keep_plugin_config: bool,
    /// Worker threads of each gateway.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Free ports for everything, to run beside another stack.
    #[arg(long)]
    ephemeral: bool,
    /// Do not build or fetch; use what is there.
    #[arg(long)]
    no_build: bool,
    /// Print one line of JSON on stdout when all is ready.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn options(&self) -> Options {
        // Relative to where xtask was called; the processes run in the repository's root.
        let given = |file: &Option<PathBuf>, default| match file {
            Some(file) => std::path::absolute(file).unwrap_or_else(|_| file.clone()),
            None => paths::root().join(default),
        };
        Options {
            gateways: self.gateways,
            deciders: self.deciders,
            redis: self.redis,
            policy: given(&self.policy, "envoy/policy.yaml"),
            provider: self.provider.clone(),
            decider: self.decider.clone(),
            template: given(&self.envoy, "envoy/envoy.yaml"),
            keep_plugin_config: self.keep_plugin_config,
            workers: self.workers,
            ephemeral: self.ephemeral,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let programs = match args.no_build {
        true => Programs::find(args.redis)?,
        false => Programs::build(args.redis)?,
    };
    // The main thread runs this future itself, which the stack relies on.
    tokio::runtime::Runtime::new()?.block_on(stay_up(args, &programs))
}

async fn stay_up(args: &Args, programs: &Programs) -> Result<()> {
    let mut told_to_end = std::pin::pin!(told_to_end()?);
    let options = args.options();
    let mut stack = tokio::select! {
        started = Stack::start(&options, programs) => started?,
        // Dropping what has been started so far kills it.
        () = &mut told_to_end => return Ok(()),
    };
    announce(&stack, args.json);
    loop {
        tokio::select! {
            () = &mut told_to_end => break,
            () = tokio::time::sleep(LOOK_AFTER_CHILDREN_EVERY) => {}
        }
        for line in stack.newly_ended()? {
            run::say(line);
        }
    }
    run::say("ending everything");
    stack.stop().await;
    Ok(())
}

/// Ready at the first SIGINT or SIGTERM.
pub fn told_to_end() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn announce(stack: &Stack, json: bool) {
    let list = |all: &[Endpoint]| {
        let texts: Vec<String> = all.iter().map(Endpoint::to_string).collect();
        texts.join(" ")
    };
    run::say(format!(
        "ready: gateways {}, admin {}, deciders {}, provider {}, Redis {}",
        list(&stack.gateways),
        list(&stack.admin),
        list(&stack.deciders),
        stack.provider,
        stack.redis.as_deref().unwrap_or("none"),
    ));
    run::say(format!(
        "try: curl -i http://{}/v1/messages -H 'host: sms.example.com' -H 'x-priority: otp' -d '{{}}'",
        stack.gateways[0]
    ));
    run::say("Ctrl-C ends it");
    if json {
        // Whoever asked for the line may have gone; the stack then still waits for its end.
        let _ = writeln!(std::io::stdout(), "{}", stack.description());
    }
}
