//! `xtask/mutants.yaml`, read.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::paths;

/// One text patch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// What is wrong with it, in words.
    pub name: String,
    pub file: String,
    /// Stands in the file exactly once.
    pub from: String,
    pub to: String,
    pub killed_by: Test,
}

/// A test by its crate and its full name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Test {
    pub place: Place,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Limits,
    Filter,
    /// The decider's own suite, with its scripts under a fake and a real Redis.
    Decider,
    /// Real Envoy, real Redis.
    E2e,
}

impl Test {
    pub fn is_quick(&self) -> bool {
        matches!(self.place, Place::Limits | Place::Filter) && !self.is_simulation()
    }

    /// Thousands of runs: to be built optimised.
    pub fn is_simulation(&self) -> bool {
        self.name.starts_with("simulation::")
    }

    pub fn is_e2e(&self) -> bool {
        self.place == Place::E2e
    }
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (place, name) = text.split_once(' ').ok_or("allowed: <place> <test>")?;
        let place = match place {
            "limits" => Place::Limits,
            "filter" => Place::Filter,
            "decider" => Place::Decider,
            "e2e" => Place::E2e,
            other => return Err(format!("`{other}`; allowed: limits, filter, decider, e2e")),
        };
        Ok(Self { place, name: name.to_owned() })
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:?})", self.name, self.place)
    }
}

/// All mutants, those of one place and file together: fewer rebuilds.
///
/// # Errors
/// The file is not as it must be, or a patch does not apply.
pub fn read() -> Result<Vec<Mutant>> {
    let path = paths::root().join("xtask/mutants.yaml");
    let text = std::fs::read_to_string(&path).context("xtask/mutants.yaml")?;
    let mut mutants: Vec<Mutant> = serde_saphyr::from_str(&text).context("xtask/mutants.yaml")?;
    for mutant in &mutants {
        mutant.patched(&std::fs::read_to_string(paths::root().join(&mutant.file))?)?;
    }
    mutants.sort_by(|a, b| (a.killed_by.place, &a.file).cmp(&(b.killed_by.place, &b.file)));
    Ok(mutants)
}

impl Mutant {
    /// The file's text with the patch.
    pub fn patched(&self, text: &str) -> Result<String> {
        match text.matches(&self.from).count() {
            1 => Ok(text.replacen(&self.from, &self.to, 1)),
            n => bail!(
                "mutant `{}`: its text stands {n} times in {}, not once",
                self.name,
                self.file
            ),
        }
    }
}
