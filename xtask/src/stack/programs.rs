//! The programs that a stack consists of: built if need be, or only looked for.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{cargo, paths, run, setup};

pub struct Programs {
    pub envoy: PathBuf,
    pub weir: PathBuf,
    pub provider_sim: PathBuf,
    redis: Option<PathBuf>,
}

impl Programs {
    /// Builds what is not up to date and fetches what is missing.
    pub fn build(with_redis: bool) -> Result<Self> {
        cargo::build_programs()?;
        setup::wasm::build()?;
        Self::find(with_redis)
    }

    /// Takes what is there: for callers that have built already.
    pub fn find(with_redis: bool) -> Result<Self> {
        for built in
            [paths::program("weir"), paths::program("provider-sim"), paths::wasm_module("weir")]
        {
            if !built.exists() {
                bail!("{} is not built: run without --no-build", paths::shown(&built));
            }
        }
        Ok(Self {
            envoy: setup::envoy::find()?,
            weir: paths::program("weir"),
            provider_sim: paths::program("provider-sim"),
            redis: with_redis.then(setup::redis::find).transpose()?,
        })
    }

    pub fn redis(&self) -> Result<PathBuf> {
        self.redis.clone().context("a stack with Redis has looked for it")
    }

    /// The weir filter's configuration for this policy.
    pub fn render(policy: &Path) -> Result<String> {
        let mut command = run::command(paths::program("weir"));
        command.arg("render").arg("--policy").arg(policy).arg("filter");
        run::output(&mut command)
            .with_context(|| format!("{} cannot be used", paths::shown(policy)))
    }
}
