//! `cargo xtask mutants`: is every safeguard watched by a test?
//!
//! Two kinds. *Designed* ones are text patches (`xtask/mutants.yaml`), each with the name of the test
//! that must notice; a patch that does not apply, does not compile or names no test is an error, for
//! it watches nothing. *Generated* ones come from cargo-mutants, over the pure crate and the filter's
//! decisions; a survivor must be listed with a reason in `.cargo/mutants.toml`.
//!
//! All happens in a copy of the repository under `target/mutants`.

mod generated;
mod list;
mod tree;

use anyhow::{Result, bail};

use self::{
    list::Mutant,
    tree::{Outcome, Tree},
};
use crate::run;

#[derive(clap::Args)]
pub struct Args {
    /// Only designed mutants whose test is a unit test of the pure crate or the filter: no Envoy, no
    /// Redis, a few minutes.
    #[arg(long)]
    quick: bool,
    /// Only the generated mutants.
    #[arg(long, conflicts_with = "quick")]
    generated: bool,
    /// Only designed mutants whose name contains this.
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    if args.generated {
        return generated::run();
    }
    let chosen: Vec<Mutant> = list::read()?
        .into_iter()
        .filter(|mutant| !args.quick || mutant.killed_by.is_quick())
        .filter(|mutant| args.filter.as_ref().is_none_or(|part| mutant.name.contains(part)))
        .collect();
    if chosen.is_empty() {
        bail!("no mutant of that name");
    }
    let mut tree = Tree::prepare(chosen.iter().any(|mutant| mutant.killed_by.is_e2e()))?;
    watch_first(&tree, &chosen)?;
    let mut bad = Vec::new();
    for (index, mutant) in chosen.iter().enumerate() {
        let outcome = tree.with(mutant, |tree| tree.test(&mutant.killed_by))?;
        let place = format!("[{}/{}]", index + 1, chosen.len());
        let verdict = match &outcome {
            Outcome::Failed => format!("killed by {}", mutant.killed_by),
            Outcome::Passed => format!("SURVIVED {}", mutant.killed_by),
            Outcome::DidNotRun(why) => format!("INVALID: {why}"),
        };
        run::say(format!("{place} {}: {verdict}", mutant.name));
        if outcome != Outcome::Failed {
            bad.push(mutant.name.as_str());
        }
    }
    if !bad.is_empty() {
        bail!("mutants: {} of {} not killed: {}", bad.len(), chosen.len(), bad.join(", "));
    }
    run::say(format!("mutants: all {} killed", chosen.len()));
    if args.quick || args.filter.is_some() {
        return Ok(());
    }
    generated::run()
}

/// Every named test must pass on the untouched tree: a test that is missing or broken kills anything.
fn watch_first(tree: &Tree, mutants: &[Mutant]) -> Result<()> {
    let mut tests: Vec<_> = mutants.iter().map(|mutant| &mutant.killed_by).collect();
    tests.sort();
    tests.dedup();
    run::say(format!("{} tests on the untouched tree …", tests.len()));
    for test in tests {
        match tree.test(test)? {
            Outcome::Passed => {}
            Outcome::Failed => bail!("{test} fails without any mutant"),
            Outcome::DidNotRun(why) => bail!("{test} does not run: {why}"),
        }
    }
    Ok(())
}
