//! The running system on one machine: Redis, deciders, the simulated provider, gateways.
//!
//! Promises: [`Stack::start`] returns when everything answers, or fails with the last words of
//! what did not; nothing that it started outlives xtask; every process writes to a log file of
//! its own, and its files lie in one directory per run.

mod child;
mod envoy_config;
mod extra;
mod ports;
mod programs;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lab::http::Client;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::{paths, run};
use child::Child;
pub use envoy_config::Endpoint;
use envoy_config::Wiring;
pub use extra::read_template;
pub use ports::Ports;
pub use programs::Programs;

/// A process that does not answer by then is taken for broken. Envoy needs 1 s on two busy cores.
const START_LIMIT: Duration = Duration::from_secs(30);
const PROBE_LIMIT: Duration = Duration::from_secs(1);
const PROBE_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct Options {
    pub gateways: u16,
    pub deciders: u16,
    pub redis: bool,
    pub policy: PathBuf,
    /// Someone else's provider or decider, instead of starting one.
    pub provider: Option<Endpoint>,
    pub decider: Option<Endpoint>,
    /// Envoy's configuration before addresses and policy are put in.
    pub template: PathBuf,
    pub keep_plugin_config: bool,
    /// Worker threads of each gateway.
    pub workers: u16,
    /// Free ports for everything instead of the usual ones.
    pub ephemeral: bool,
}

pub struct Stack {
    pub gateways: Vec<Endpoint>,
    pub admin: Vec<Endpoint>,
    pub deciders: Vec<Endpoint>,
    pub provider: Endpoint,
    pub redis: Option<String>,
    pub run_dir: PathBuf,
    children: Vec<Child>,
    ports: Ports,
}

impl Stack {
    /// Call it on the main thread: Linux ends the children when the thread that started them ends.
    pub async fn start(options: &Options, programs: &Programs) -> Result<Self> {
        let template = envoy_config::read(&options.template)?;
        let plugin = plugin_config(options, &template)?;
        let mut stack = Self {
            gateways: Vec::new(),
            admin: Vec::new(),
            deciders: Vec::new(),
            provider: Endpoint::loopback(0),
            redis: None,
            run_dir: run_dir()?,
            children: Vec::new(),
            ports: Ports::new(options.ephemeral)?,
        };
        run::say(format!("logs: {}", paths::shown(&stack.run_dir)));
        let started = stack.start_all(options, programs, &template, plugin.as_deref());
        started.await?;
        Ok(stack)
    }

    async fn start_all(
        &mut self,
        options: &Options,
        programs: &Programs,
        template: &Value,
        plugin: Option<&str>,
    ) -> Result<()> {
        if options.redis {
            self.start_redis(&programs.redis()?).await?;
        }
        match &options.provider {
            Some(elsewhere) => self.provider = elsewhere.clone(),
            None => self.start_provider(&programs.provider_sim)?,
        }
        match &options.decider {
            Some(elsewhere) => self.deciders = vec![elsewhere.clone()],
            None => self.start_deciders(options, &programs.weir)?,
        }
        // Gateways last, so that they find a decider; all start at the same time.
        for i in 0..options.gateways {
            self.start_gateway(i, options, &programs.envoy, template, plugin)?;
        }
        self.all_ready(options).await
    }

    async fn start_redis(&mut self, server: &Path) -> Result<()> {
        let at = Endpoint::loopback(self.ports.free()?);
        let dir = self.run_dir.join("redis");
        std::fs::create_dir_all(&dir)?;
        let mut command = Command::new(server);
        command
            .args(["--bind", "127.0.0.1", "--daemonize", "no"])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--port", &at.port.to_string()])
            .arg("--dir")
            .arg(&dir);
        self.spawn("redis", command)?;
        self.redis = Some(format!("redis://{at}"));
        self.wait_until_ready("redis", async || redis_answers(&at).await).await
    }

    fn start_provider(&mut self, program: &Path) -> Result<()> {
        self.provider = Endpoint::loopback(self.ports.take("provider", 9000)?);
        let mut command = Command::new(program);
        command.args(["--listen", &self.provider.to_string()]);
        self.spawn("provider", command)
    }

    fn start_deciders(&mut self, options: &Options, weir: &Path) -> Result<()> {
        if options.deciders > 1 && !options.redis {
            run::say("several deciders without --redis: each counts for itself alone");
        }
        for i in 0..options.deciders {
            let name = format!("decider-{i}");
            let at = Endpoint::loopback(self.ports.take(&name, 8080 + i)?);
            let store = self.redis.as_ref().map(|redis| format!("{redis}/0"));
            let store = store.as_deref().unwrap_or("memory");
            self.start_decider(&name, &at, weir, &options.policy, store)?;
            self.deciders.push(at);
        }
        Ok(())
    }

    fn start_decider(
        &mut self,
        name: &str,
        at: &Endpoint,
        weir: &Path,
        policy: &Path,
        store: &str,
    ) -> Result<()> {
        let mut command = Command::new(weir);
        command.arg("serve").arg("--policy").arg(policy);
        command.args(["--listen", &at.to_string(), "--store", store]);
        self.spawn(name, command)
    }

    fn start_gateway(
        &mut self,
        i: u16,
        options: &Options,
        envoy: &Path,
        template: &Value,
        plugin: Option<&str>,
    ) -> Result<()> {
        let name = format!("gateway-{i}");
        let listener = Endpoint::loopback(self.ports.take(&name, 10_000 + i)?);
        let admin = Endpoint::loopback(self.ports.take(&format!("{name}'s admin"), 9_901 + i)?);
        let wiring = Wiring {
            egress: &listener,
            admin: &admin,
            decider: &self.deciders[usize::from(i) % self.deciders.len()],
            provider: &self.provider,
            plugin,
        };
        let file = self.run_dir.join(format!("{name}.yaml"));
        let config = envoy_config::wire(template.clone(), &wiring)
            .with_context(|| format!("{} cannot be used", paths::shown(&options.template)))?;
        std::fs::write(&file, serde_saphyr::to_string(&config)?)?;
        let mut command = Command::new(envoy);
        command.arg("-c").arg(&file);
        command.args(["--service-node", &name, "--service-cluster", "weir"]);
        command.args(["--concurrency", &options.workers.to_string()]);
        // Hot restart wants an id of its own per process; nobody restarts these in place.
        command.arg("--disable-hot-restart");
        command.args(["--file-flush-interval-msec", "500"]);
        // Envoy's start prints a page of extension names otherwise.
        let levels = "wasm:info,config:info";
        command.args(["--log-level", "warning", "--component-log-level", levels]);
        self.spawn(&name, command)?;
        self.gateways.push(listener);
        self.admin.push(admin);
        Ok(())
    }

    fn spawn(&mut self, name: &str, command: Command) -> Result<()> {
        let child = Child::spawn(name, command, &self.run_dir)?;
        self.children.push(child);
        Ok(())
    }

    async fn all_ready(&mut self, options: &Options) -> Result<()> {
        let mut probes = Vec::new();
        if options.provider.is_none() {
            let at = self.provider.clone();
            probes.push(("provider".to_owned(), at, "/_sim/report"));
        }
        if options.decider.is_none() {
            for (i, at) in self.deciders.iter().enumerate() {
                probes.push((format!("decider-{i}"), at.clone(), "/readyz"));
            }
        }
        for (i, at) in self.admin.iter().enumerate() {
            probes.push((format!("gateway-{i}"), at.clone(), "/ready"));
        }
        let client = Client::default();
        for (name, at, path) in probes {
            let address = at.to_string();
            self.wait_until_ready(&name, async || {
                client.get(&address, path, PROBE_LIMIT).await.is_ok()
            })
            .await?;
        }
        Ok(())
    }

    /// Asks again and again; ends early if a process has died.
    async fn wait_until_ready(&mut self, name: &str, probe: impl AsyncFn() -> bool) -> Result<()> {
        let asking = async {
            loop {
                if probe().await {
                    return Ok(());
                }
                for child in &mut self.children {
                    if let Some(status) = child.ended()? {
                        let words = child.last_words();
                        bail!("{} ended while it started ({status}):\n{words}", child.name);
                    }
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        };
        match tokio::time::timeout(START_LIMIT, asking).await {
            Ok(result) => result,
            Err(_) => {
                let child = self.children.iter().find(|child| child.name == name);
                let words = child.map(Child::last_words).unwrap_or_default();
                let limit = START_LIMIT.as_secs();
                bail!("{name} was not ready within {limit} s:\n{words}")
            }
        }
    }

    /// Everything that someone needs to use the stack, or to restart a part of it.
    pub fn description(&self) -> Value {
        let texts = |list: &[Endpoint]| list.iter().map(Endpoint::to_string).collect::<Vec<_>>();
        let of_children = |what: fn(&Child) -> Value| -> Value {
            let pairs = self.children.iter().map(|c| (c.name.clone(), what(c)));
            Value::Object(pairs.collect())
        };
        json!({
            "gateways": texts(&self.gateways),
            "admin": texts(&self.admin),
            "deciders": texts(&self.deciders),
            "provider": self.provider.to_string(),
            "redis": self.redis,
            "pids": of_children(|child| json!(child.pid)),
            "commands": of_children(|child| json!(child.command)),
            "logs": self.run_dir,
        })
    }

    /// Names of processes that have ended since the last call, with how.
    pub fn newly_ended(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for child in &mut self.children {
            if let Some(status) = child.newly_ended()? {
                ended.push(format!("{} has ended ({status})", child.name));
            }
        }
        Ok(ended)
    }

    /// Gateways first: what they still want to say finds someone who listens.
    pub async fn stop(mut self) {
        for child in self.children.iter().rev() {
            child.ask_to_end();
        }
        for child in &mut self.children {
            child.end().await;
        }
    }
}

/// What the weir filter is told, unless the template has none or keeps its own.
fn plugin_config(options: &Options, template: &Value) -> Result<Option<String>> {
    if options.keep_plugin_config || envoy_config::weir_configurations(template).is_empty() {
        return Ok(None);
    }
    let rendered = Programs::render(&options.policy)?;
    let value: Value = serde_json::from_str(&rendered)
        .with_context(|| format!("`weir render` did not print JSON but {rendered:?}"))?;
    let most = value.pointer("/policy/gateways/max").and_then(Value::as_u64);
    if most.is_some_and(|most| most < u64::from(options.gateways)) {
        run::say(format!(
            "{} gateways are more than the policy's gateways.max; without a decider they may \
             exceed the contract",
            options.gateways
        ));
    }
    Ok(Some(rendered))
}

/// What the weir filters of a template are told, as it stands there.
pub fn weir_configurations(template: &Path) -> Result<Vec<String>> {
    Ok(envoy_config::weir_configurations(&envoy_config::read(template)?))
}

async fn redis_answers(at: &Endpoint) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ping = async {
        let mut connection = TcpStream::connect((at.host.as_str(), at.port)).await?;
        connection.write_all(b"PING\r\n").await?;
        let mut answer = [0; 5];
        connection.read_exact(&mut answer).await?;
        std::io::Result::Ok(&answer == b"+PONG")
    };
    matches!(tokio::time::timeout(PROBE_LIMIT, ping).await, Ok(Ok(true)))
}

/// `target/run/<pid>`, and directories in it for the second stack of this process and those after it;
/// of earlier runs the last few are kept for a look at their logs.
fn run_dir() -> Result<PathBuf> {
    const KEPT: usize = 20;
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let all = paths::target("run");
    let before = STARTED.fetch_add(1, Ordering::Relaxed);
    if before > 0 {
        let dir = all.join(std::process::id().to_string()).join(format!("stack-{}", before + 1));
        std::fs::create_dir_all(&dir)?;
        return Ok(dir);
    }
    std::fs::create_dir_all(&all)?;
    let mut earlier: Vec<_> = std::fs::read_dir(&all)?
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let changed = entry.metadata().ok()?.modified().ok()?;
            (!child::is_alive(pid)).then(|| (changed, entry.path()))
        })
        .collect();
    earlier.sort();
    let dir = all.join(std::process::id().to_string());
    let _ = std::fs::remove_dir_all(&dir);
    for (_, old) in earlier.iter().rev().skip(KEPT) {
        let _ = std::fs::remove_dir_all(old);
    }
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
