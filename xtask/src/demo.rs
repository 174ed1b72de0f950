//! `cargo xtask demo`: the evening again, with every design, and what the provider saw of it.
//!
//! A campaign scales from 2 pods to 20 while people log in. Each design runs against a provider that
//! counts in a rolling second and one whose seconds begin at another time than ours, three times;
//! shown is the worst of the three. The command fails unless Weir kept the contract on every run: a
//! demo that shows the opposite must not look like success.

#[cfg(test)]
mod browser;
mod chart;
#[cfg(test)]
mod fixture;
mod page;
mod report;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Design, Load, Outcome, Trial, replay};

use crate::stack::Programs;
use crate::track::Track;
use crate::{paths, run, up};
use report::{Report, Setting};

/// How the two providers measure their second.
pub const PROVIDERS: [(&str, &str); 2] = [
    ("rolling", r#"{"model":"rolling","limit":100,"window":"1s"}"#),
    ("phase-shifted", r#"{"model":"fixed","limit":100,"window":"1s","phase":"370ms"}"#),
];

#[derive(clap::Args)]
pub struct Args {
    /// Weir and v2 (GET, compare, INCR) only.
    #[arg(long)]
    quick: bool,
    /// Only these designs.
    #[arg(long, value_name = "NAME", conflicts_with = "quick")]
    design: Vec<Design>,
    /// What there is to send: even, poisson, late-burst, at-once.
    #[arg(long, default_value = "late-burst")]
    load: Load,
    /// Length of one run.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Runs of each design against each provider; the worst is shown.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=20))]
    repeat: u64,
    /// How much the delay on the way to the provider varies, in ms.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=1000))]
    jitter_ms: u64,
    /// Do not build or fetch; use what is there.
    #[arg(long)]
    no_build: bool,
}

impl Args {
    fn designs(&self) -> Vec<Design> {
        match (self.quick, self.design.is_empty()) {
            (true, _) => vec![Design::CheckThenCount, Design::Weir],
            (false, true) => Design::ALL.to_vec(),
            (false, false) => self.design.clone(),
        }
    }

    fn setting(&self) -> Setting {
        Setting {
            load: self.load,
            lasting: Duration::from_secs(self.seconds),
            repetitions: self.repeat,
            jitter: Duration::from_millis(self.jitter_ms),
        }
    }
}

/// One run and what it was of.
pub struct Done {
    pub design: Design,
    pub provider: &'static str,
    pub outcome: Outcome,
}

pub fn run(args: &Args) -> Result<()> {
    introduce(args);
    let programs = match args.no_build {
        true => Programs::find(true)?,
        false => Programs::build(true)?,
    };
    let done = tokio::runtime::Runtime::new()?.block_on(async {
        let told_to_end = up::told_to_end()?;
        tokio::select! {
            result = replay_all(args, &programs) => result,
            () = told_to_end => bail!("interrupted"),
        }
    })?;
    let report = Report::of(&args.setting(), &done);
    println!("\n{}\n", table::of(&report));
    write(&report, &done)?;
    report.verdict().map(|words| println!("\n{words}"))
}

fn write(report: &Report, done: &[Done]) -> Result<()> {
    let dir = paths::target("demo");
    std::fs::create_dir_all(&dir)?;
    let put = |name: &str, text: String| -> Result<()> {
        let file = dir.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", paths::shown(&file)))
    };
    let designs = Design::ALL.into_iter();
    let pairs = designs.flat_map(|design| PROVIDERS.map(|(provider, _)| (design, provider)));
    let drawn = pairs.filter_map(|(design, provider)| chart::worst(done, design, provider));
    put("report.json", serde_json::to_string_pretty(report)?)?;
    put("report.svg", chart::sheet(report, &drawn.collect::<Vec<_>>())?)?;
    put("report.html", page::of(report, done)?)?;
    println!(
        "For people: {}; also report.svg and report.json",
        paths::shown(&dir.join("report.html"))
    );
    Ok(())
}

fn introduce(args: &Args) {
    let setting = args.setting();
    let (designs, seconds) = (args.designs(), args.seconds);
    println!(
        "The evening again: one SMS account, sold at 100 requests a second, shared by 23 processes.\n\
         A campaign scales from 2 pods to 16 and 20 while people log in and wait for their codes.\n\
         {} design{}, each {} × {seconds} s against two providers that measure their second differently: \
         a real Redis, real Envoys,\na simulated provider that counts what reaches it. About {} s once all is built.\n",
        designs.len(),
        if designs.len() == 1 { "" } else { "s" },
        setting.repetitions,
        (seconds + 2) * setting.repetitions * designs.len() as u64 + 8,
    );
}

async fn replay_all(args: &Args, programs: &Programs) -> Result<Vec<Done>> {
    run::say(
        "starting two providers, each with a Redis for the senders, two deciders and two Envoys",
    );
    let jitter = args.setting().jitter;
    let policy = paths::root().join("envoy/policy.yaml");
    let mut tracks = Vec::new();
    for (name, model) in PROVIDERS {
        let track = Track::start(programs, model, jitter, Some(&policy)).await;
        tracks.push(track.with_context(|| format!("the stack of the {name} provider"))?);
    }
    let start = Instant::now();
    let designs = args.designs();
    let mut done = Vec::new();
    for (index, &design) in designs.iter().enumerate() {
        for repetition in 0..args.repeat {
            run::say(format!(
                "{}/{} {}: {}, run {} of {} ({} s)",
                index + 1,
                designs.len(),
                design.name(),
                design.title(),
                repetition + 1,
                args.repeat,
                start.elapsed().as_secs(),
            ));
            done.extend(side_by_side(args, &mut tracks, design, repetition).await?);
        }
        run::say(table::line_of(&done, design));
    }
    for track in tracks {
        track.stop().await;
    }
    Ok(done)
}

/// The same run against both providers at the same time.
async fn side_by_side(
    args: &Args,
    tracks: &mut [Track],
    design: Design,
    repetition: u64,
) -> Result<Vec<Done>> {
    let Setting { load, lasting, .. } = args.setting();
    let trial = Trial { design, load, lasting, seed: repetition + 1 };
    let [rolling, shifted] = tracks else { bail!("there are two tracks") };
    let both = tokio::join!(replay(trial, &rolling.site), replay(trial, &shifted.site));
    rolling.check()?;
    shifted.check()?;
    let outcomes = [both.0?, both.1?];
    let done = PROVIDERS.into_iter().zip(outcomes);
    Ok(done.map(|((provider, _), outcome)| Done { design, provider, outcome }).collect())
}
