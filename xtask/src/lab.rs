//! `cargo xtask lab`: every way in which providers count × every sender design.
//!
//! Shown is what the provider refused and how full its fullest window was. Models are laid beside
//! each other in lanes; the judge is `provider-sim` alone. `--write` puts the table into docs/lab.md.

mod matrix;
mod models;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::{Design, Load, Outcome, Trial, replay};

use crate::stack::Programs;
use crate::track::Track;
use crate::{paths, run, up};
use models::Model;

/// A model at a time on one core; two of them leave two cores busy and not late.
const LANES: usize = 2;
const SEED: u64 = 1;

#[derive(clap::Args)]
pub struct Args {
    /// Only these models of `provider-sim`.
    #[arg(long, value_name = "NAME", value_parser = models::parse)]
    model: Vec<&'static Model>,
    /// Only these designs.
    #[arg(long, value_name = "NAME")]
    design: Vec<Design>,
    /// What there is to send: even, poisson, late-burst, at-once.
    #[arg(long, default_value = "late-burst")]
    load: Load,
    /// Length of one run. Below 60 s, models with long windows are run in a shortened form.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=300))]
    seconds: u64,
    /// How much the delay on the way to the provider varies, in ms.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=1000))]
    jitter_ms: u64,
    /// Put the table into docs/lab.md.
    #[arg(long)]
    write: bool,
    /// Do not build or fetch; use what is there.
    #[arg(long)]
    no_build: bool,
}

/// One run and what it was of.
struct Cell {
    model: &'static Model,
    design: Design,
    outcome: Outcome,
}

impl Args {
    fn models(&self) -> Vec<&'static Model> {
        match self.model.is_empty() {
            true => models::ALL.iter().collect(),
            false => self.model.clone(),
        }
    }

    fn designs(&self) -> Vec<Design> {
        match self.design.is_empty() {
            true => Design::ALL.to_vec(),
            false => self.design.clone(),
        }
    }

    /// What someone else has to type for the same table.
    fn command(&self) -> String {
        let mut words = vec!["cargo xtask lab".to_owned()];
        words.extend(self.model.iter().map(|model| format!("--model {}", model.name)));
        words.extend(self.design.iter().map(|design| format!("--design {}", design.name())));
        if self.load != Load::LateBurst {
            words.push(format!("--load {}", self.load.name()));
        }
        if self.seconds != 5 {
            words.push(format!("--seconds {}", self.seconds));
        }
        if self.jitter_ms != 20 {
            words.push(format!("--jitter-ms {}", self.jitter_ms));
        }
        words.push("--write".to_owned());
        words.join(" ")
    }
}

pub fn run(args: &Args) -> Result<()> {
    let programs = match args.no_build {
        true => Programs::find(true)?,
        false => Programs::build(true)?,
    };
    let cells = tokio::runtime::Runtime::new()?.block_on(async {
        let told_to_end = up::told_to_end()?;
        tokio::select! {
            result = run_all(args, &programs) => result,
            () = told_to_end => bail!("interrupted"),
        }
    })?;
    let (models, designs) = (args.models(), args.designs());
    println!("\n{}", matrix::for_terminal(&models, &designs, &cells));
    if args.write {
        let text = matrix::markdown(&models, &designs, &cells, &args.command(), args.seconds);
        let file = paths::root().join("docs/lab.md");
        matrix::put_into(&file, &text)?;
        println!("\nWritten into {}", paths::shown(&file));
    }
    Ok(())
}

async fn run_all(args: &Args, programs: &Programs) -> Result<Vec<Cell>> {
    // A policy that is refused should not cost the time of those before it.
    for model in args.models() {
        Programs::render(&model.policy()?)?;
    }
    let waiting = Mutex::new(VecDeque::from(args.models()));
    let per_model = (args.seconds + 2) * args.designs().len() as u64 + 4;
    let rounds = args.models().len().div_ceil(LANES) as u64;
    run::say(format!("about {} s", per_model * rounds));
    let start = Instant::now();
    // Both lanes are driven by the main thread: the stack wants to be started there.
    let lane = || lane(args, programs, &waiting, start);
    let (one, other) = tokio::try_join!(lane(), lane())?;
    Ok(one.into_iter().chain(other).collect())
}

/// Takes one model after the other.
async fn lane(
    args: &Args,
    programs: &Programs,
    waiting: &Mutex<VecDeque<&'static Model>>,
    start: Instant,
) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    loop {
        let next = waiting.lock().ok().and_then(|mut waiting| waiting.pop_front());
        let Some(model) = next else { return Ok(cells) };
        let of_model = of_model(args, programs, model).await;
        let of_model = of_model.with_context(|| format!("model {}", model.name))?;
        let words: Vec<String> = of_model
            .iter()
            .map(|cell| format!("{} {}", cell.design.name(), matrix::refusals(&cell.outcome)))
            .collect();
        let (name, s) = (model.name, start.elapsed().as_secs());
        run::say(format!("{name} ({s} s): {}", words.join(", ")));
        cells.extend(of_model);
    }
}

async fn of_model(args: &Args, programs: &Programs, model: &'static Model) -> Result<Vec<Cell>> {
    let policy = model.policy()?;
    let jitter = Duration::from_millis(args.jitter_ms);
    let settings = model.settings(args.seconds);
    let mut track = Track::start(programs, settings, jitter, Some(&policy)).await?;
    let mut cells = Vec::new();
    for design in args.designs() {
        let lasting = Duration::from_secs(args.seconds);
        let trial = Trial { design, load: args.load, lasting, seed: SEED };
        let outcome = replay(trial, &track.site).await;
        track.check()?;
        cells.push(Cell { model, design, outcome: outcome? });
    }
    track.stop().await;
    Ok(cells)
}
