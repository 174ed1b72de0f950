//! A stack from `xtask up`, on ports of its own; it ends with the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use lab::http::Client;
use serde::Deserialize;
use serde_json::Value;

use super::{Sim, call, ms};

const START_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(10);
pub const LIMIT: &str = "sms-acct-main";

/// Everything `xtask up --json` says.
#[derive(Debug, Deserialize)]
pub struct Ready {
    pub gateways: Vec<String>,
    pub admin: Vec<String>,
    pub deciders: Vec<String>,
    pub provider: String,
    /// As a URL.
    pub redis: Option<String>,
    pids: BTreeMap<String, i32>,
    commands: BTreeMap<String, Vec<String>>,
    logs: PathBuf,
}

pub struct Stack {
    pub ready: Ready,
    pub sim: Sim,
    pub client: Client,
    xtask: Process,
}

/// A process that ends when it is dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn program(name: &str) -> PathBuf {
    let path = root().join("target/release").join(name);
    assert!(path.exists(), "{} is missing: `cargo xtask test` builds it", path.display());
    path
}

/// A new file for this run of the tests.
pub fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static DIR: LazyLock<PathBuf> = LazyLock::new(scratch_dir);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    DIR.join(format!("{number}-{name}"))
}

/// A directory for this run; those of earlier runs go.
fn scratch_dir() -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e");
    for earlier in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        let pid = earlier.file_name().to_str().and_then(|name| name.parse().ok());
        // SAFETY: kill with signal 0 only asks whether the process exists.
        let runs = pid.is_some_and(|pid: libc::pid_t| unsafe { libc::kill(pid, 0) } == 0);
        if !runs {
            let _ = std::fs::remove_dir_all(earlier.path());
        }
    }
    let dir = all.join(std::process::id().to_string());
    std::fs::create_dir_all(&dir).expect("the scratch directory can be made");
    dir
}

pub fn write_scratch(name: &str, text: &str) -> String {
    let path = scratch(name);
    std::fs::write(&path, text).expect("a scratch file can be written");
    path.to_str().expect("scratch paths are text").to_owned()
}

thread_local! {
    /// Held by the test, that is by its thread, from its first stack to its end: tests measure time,
    /// also when someone forgets `--test-threads=1`.
    static TURN: MutexGuard<'static, ()> = {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    };
}

impl Stack {
    /// `args` as `xtask up` takes them.
    pub fn up(args: &[&str]) -> Self {
        TURN.with(|_| ());
        let mut command = Command::new(program("xtask"));
        command.args(["up", "--no-build", "--ephemeral", "--json"]).args(args);
        command.stdout(Stdio::piped());
        let mut xtask = Process::spawn("xtask", command);
        let ready = first_line(&mut xtask);
        let ready: Ready = serde_json::from_str(&ready).expect("the line that `xtask up` prints");
        let sim = Sim::new(&ready.provider);
        Self { sim, client: Client::default(), ready, xtask }
    }

    pub fn gateway(&self, index: usize) -> &str {
        &self.ready.gateways[index]
    }

    /// One request to the first gateway as `class`.
    pub async fn send(&self, class: &str) -> call::Answer {
        call::call(&self.client, self.gateway(0), &[("x-priority", class)]).await
    }

    /// A gateway's counters, by name as `/stats` shows them.
    pub async fn stats(&self, gateway: usize) -> BTreeMap<String, u64> {
        #[derive(Deserialize)]
        struct Stats {
            stats: Vec<Value>,
        }
        let path = "/stats?format=json&usedonly";
        let stats: Stats = self
            .client
            .get_json(&self.ready.admin[gateway], path, Duration::from_secs(2))
            .await
            .expect("Envoy's stats");
        let pair =
            |stat: &Value| Some((stat["name"].as_str()?.to_owned(), stat["value"].as_u64()?));
        stats.stats.iter().filter_map(pair).collect()
    }

    /// One of the filter's counters of the sample limit, summed over all gateways.
    pub async fn counted(&self, name: &str) -> u64 {
        let name = format!("wasmcustom.weir.{LIMIT}.{name}");
        let mut sum = 0;
        for gateway in 0..self.ready.gateways.len() {
            sum += self.stats(gateway).await.get(&name).copied().unwrap_or(0);
        }
        sum
    }

    /// Nothing in any gateway had to be restarted, and the filter found nothing impossible.
    pub async fn assert_filter_is_well(&self) {
        for gateway in 0..self.ready.gateways.len() {
            let stats = self.stats(gateway).await;
            let reloads = stats.iter().filter(|(name, _)| name.contains("vm_reload"));
            for (name, value) in reloads {
                assert_eq!(*value, 0, "{name} of gateway {gateway}");
            }
        }
        assert_eq!(self.counted("broken").await, 0, "the filter found something impossible");
    }

    /// What is left of the provider's stop, as the decider has it.
    pub async fn penalty(&self, decider: usize) -> Duration {
        let path = format!("/v1/limits/{LIMIT}");
        let state: Value = self
            .client
            .get_json(&self.ready.deciders[decider], &path, Duration::from_secs(1))
            .await
            .expect("the decider's view of the limit");
        Duration::from_micros(state["penalty_us"].as_u64().expect("penalty_us"))
    }

    pub fn pid(&self, name: &str) -> i32 {
        *self.ready.pids.get(name).unwrap_or_else(|| panic!("no process {name}"))
    }

    pub fn signal(&self, name: &str, signal: libc::c_int) {
        let pid = self.pid(name);
        // SAFETY: kill only takes numbers. The process belongs to this stack, which waits for it.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "signal {signal} to {name}");
    }

    /// The program that runs as this part.
    pub fn program_of(&self, name: &str) -> PathBuf {
        PathBuf::from(&self.ready.commands[name][0])
    }

    /// Starts a killed part again as it was started first, on the same port.
    pub fn start_again(&self, name: &str) -> Process {
        let words = self.ready.commands.get(name).unwrap_or_else(|| panic!("no command of {name}"));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(root()).stdout(Stdio::null());
        Process::spawn(name, command)
    }

    /// What a part has logged so far.
    pub fn log(&self, name: &str) -> String {
        let file = root().join(&self.ready.logs).join(format!("{name}.log"));
        std::fs::read_to_string(file).expect("the log")
    }

    /// One JSON object per request.
    pub fn access_log(&self, gateway: usize) -> Vec<Value> {
        let text = self.log(&format!("gateway-{gateway}.out"));
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs: {} and {}", self.ready.logs.display(), self.xtask.log.display());
        }
    }
}

impl Process {
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let log = scratch(&format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a log file can be made");
        command.stdin(Stdio::null()).stderr(file);
        end_with_this_thread(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { child, log }
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process id");
        // SAFETY: kill only takes numbers; the child has not been waited for.
        unsafe { libc::kill(pid, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(libc::SIGTERM);
        self.signal(libc::SIGCONT);
        let start = Instant::now();
        while start.elapsed() < END_LIMIT {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(ms(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line on standard output, or a panic with the process's last words.
fn first_line(process: &mut Process) -> String {
    let stdout = process.child.stdout.take().expect("stdout is a pipe");
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines();
        let _ = told.send(lines.next().and_then(Result::ok));
        // Read on, so that the process never writes into a closed pipe.
        lines.for_each(drop);
    });
    match heard.recv_timeout(START_LIMIT) {
        Ok(Some(line)) => line,
        _ => panic!("the stack did not come up:\n{}", process.log()),
    }
}

/// A test run that is killed leaves nothing behind (on Linux, where the kernel can be asked).
#[cfg(target_os = "linux")]
fn end_with_this_thread(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let ask_kernel = || {
        // SAFETY: prctl takes numbers and is safe between fork and exec.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        Ok(())
    };
    // SAFETY: the closure neither allocates nor locks.
    unsafe { command.pre_exec(ask_kernel) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_this_thread(_: &mut Command) {}
