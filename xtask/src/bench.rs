//! `cargo xtask bench`: what Weir costs, as ratios to what it cannot be cheaper than.
//!
//! Promise: a ratio is that of two things measured in turn (A, B, then B, A …) on the same machine,
//! in the same Envoy process, on the same worker thread; the median over the rounds is told, with
//! the spread, so that a reader sees what a noisy machine makes of it. Many short rounds and not a
//! few long ones: a disturbance that lasts seconds then meets both sides. A round in which something else
//! happened than what was to be measured (a refusal where a grant was due, a lost connection, a
//! decision made without the decider) fails the command. No figure does.

mod arena;
mod compare;
mod cpu;
mod load;
mod memory;
mod report;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{ValueEnum, value_parser};

use crate::stack::Programs;
use crate::{run, setup, up};
use arena::Arena;
use compare::{Comparison, Measured, Side};
use load::Wrk;
use memory::Memory;
use report::Report;

#[derive(clap::Args)]
pub struct Args {
    /// How often each side of a comparison is measured.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each side is loaded in a round.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Measure this alone; may be given several times.
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Subject>,
    /// Do not build or fetch; use what is there.
    #[arg(long)]
    no_build: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Subject {
    /// Refusals from the gateway's memory, against replies of Envoy behind a filter that does nothing.
    RefusedVsNoop,
    /// Granted through decider and Redis, and proxied, against proxied.
    GrantedVsNoopProxied,
    /// Requests that no limit matches.
    UnmatchedVsNoop,
    /// Time added to one request at a time, against one plain call per request.
    AddedP50VsHttpCall,
    /// The decider with Redis, against itself without any store.
    DeciderVsNoStore,
    /// Size of the module, memory of each of its virtual machines.
    Memory,
}

impl Args {
    fn wants(&self, subject: Subject) -> bool {
        self.only.is_empty() || self.only.contains(&subject)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let programs = match args.no_build {
        true => Programs::find(true)?,
        false => Programs::build(true)?,
    };
    let wrk = Wrk::new(setup::wrk::find()?)?;
    // The main thread runs this future itself, which the stack relies on.
    tokio::runtime::Runtime::new()?.block_on(async {
        let told_to_end = up::told_to_end()?;
        tokio::select! {
            result = measure_all(args, &programs, &wrk) => result,
            () = told_to_end => bail!("interrupted"),
        }
    })
}

async fn measure_all(args: &Args, programs: &Programs, wrk: &Wrk) -> Result<()> {
    let mut report = Report::new(args.rounds, args.seconds);
    let wanted = compare::all().into_iter().filter(|comparison| args.wants(comparison.subject));
    let wanted: Vec<Comparison> = wanted.collect();
    if !wanted.is_empty() {
        let mut arena = Arena::start(programs).await?;
        for comparison in wanted {
            match measure(args, &comparison, &mut arena, wrk).await {
                Ok(measured) => report.add(comparison, measured),
                Err(e) => report.failed(comparison.name(), &e),
            }
        }
        arena.stop().await;
    }
    if args.wants(Subject::Memory) {
        match Memory::measure(programs, wrk).await {
            Ok(memory) => report.memory = Some(memory),
            Err(e) => report.failed("memory".to_owned(), &e),
        }
    }
    let file = report.write()?;
    println!("\n{report}");
    run::say(format!("written: {}", crate::paths::shown(&file)));
    if !report.failures.is_empty() {
        bail!("not everything could be measured: {}", report.failures.join("; "));
    }
    Ok(())
}

async fn measure(
    args: &Args,
    comparison: &Comparison,
    arena: &mut Arena,
    wrk: &Wrk,
) -> Result<Measured> {
    const WARM_UP: Duration = Duration::from_secs(1);
    let lasting = Duration::from_secs(args.seconds);
    run::say(format!("{}: {} rounds", comparison.name(), args.rounds));
    // Connections to provider, decider and Redis, and the code on the way, are made warm once.
    for side in &comparison.sides {
        arena.round(wrk, comparison, side, WARM_UP).await?;
    }
    let mut measured = Measured::default();
    for number in 0..args.rounds {
        let backwards = number % 2 == 1;
        let mut sides: Vec<&Side> = comparison.sides.iter().collect();
        if backwards {
            sides.reverse();
        }
        let mut round = Vec::new();
        for side in sides {
            round.push(arena.round(wrk, comparison, side, lasting).await?);
        }
        if backwards {
            round.reverse();
        }
        measured.rounds.push(round);
    }
    Ok(measured)
}
