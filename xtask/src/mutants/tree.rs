//! A copy of the repository to break.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context, Result};

use super::list::{Mutant, Place, Test};
use crate::{cargo, paths, run, setup};

pub struct Tree {
    root: PathBuf,
    /// What end-to-end tests need and the copy must not fetch again.
    found: Option<setup::Found>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    DidNotRun(String),
}

impl Tree {
    /// Copies what git knows or would add; what is unchanged keeps its date, and so its build.
    pub fn prepare(end_to_end: bool) -> Result<Self> {
        let root = paths::target("mutants/tree");
        let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let files = run::output(run::command("git").args(listed))?;
        for file in files.lines() {
            let (from, to) = (paths::root().join(file), root.join(file));
            let Ok(bytes) = std::fs::read(&from) else { continue };
            if std::fs::read(&to).is_ok_and(|old| old == bytes) {
                continue;
            }
            let folder = to.parent().context("a file has a folder")?;
            std::fs::create_dir_all(folder)?;
            std::fs::write(&to, bytes).with_context(|| to.display().to_string())?;
        }
        let found = end_to_end.then(setup::all).transpose()?;
        Ok(Self { root, found })
    }

    /// Applies the patch, does something, and takes it back.
    pub fn with<T>(&mut self, mutant: &Mutant, act: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let path = self.root.join(&mutant.file);
        let before = std::fs::read_to_string(&path)?;
        std::fs::write(&path, mutant.patched(&before)?)?;
        let result = act(self);
        std::fs::write(&path, before)?;
        result
    }

    pub fn test(&self, test: &Test) -> Result<Outcome> {
        let mut command = match test.place {
            Place::Limits => cargo::cargo(&["test", "--package", "limits", "--lib"]),
            Place::Filter => cargo::cargo(&["test", "--package", "weir-filter", "--lib"]),
            Place::Decider => cargo::cargo(&["test", "--package", "decider", "--test", "suite"]),
            Place::E2e => cargo::cargo(&["xtask", "test", "--only", "e2e", &test.name]),
        };
        if test.is_simulation() {
            command.arg("--release");
        }
        if test.place != Place::E2e {
            command.args(["--", "--exact", &test.name]);
        }
        if let Some(found) = &self.found {
            command.env("ENVOY", &found.envoy).env("REDIS_SERVER", &found.redis);
        }
        command.current_dir(&self.root).stdin(Stdio::null());
        let out = command.output().context("cannot start cargo")?;
        let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        Ok(outcome(&text, out.status.success()))
    }
}

/// What libtest's closing line says.
fn outcome(text: &str, success: bool) -> Outcome {
    let Some(line) = text.lines().find(|line| line.starts_with("test result: ")) else {
        let why = text.lines().find(|line| line.starts_with("error")).unwrap_or("no test result");
        return Outcome::DidNotRun(why.to_owned());
    };
    match (line.contains(" 0 passed; 0 failed"), success) {
        (true, _) => Outcome::DidNotRun("no test of that name".to_owned()),
        (false, true) => Outcome::Passed,
        (false, false) => Outcome::Failed,
    }
}
