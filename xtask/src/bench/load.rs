//! Load by `wrk`, and what it reports.
//!
//! wrk prints latencies with three digits; a script's `done` callback gets them in whole µs, so that
//! callback prints the report, as one line of JSON.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::stack::Endpoint;
use crate::{paths, run};

/// wrk ends by itself; this only guards against one that does not.
const GRACE: Duration = Duration::from_secs(20);

const DONE: &str = r#"
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,' ..
    '"not_2xx":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d}\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50.0), latency:percentile(99.0),
    e.status, e.connect, e.read, e.write, e.timeout))
end
"#;

/// The same request over and over, on so many connections at a time.
#[derive(Debug, Clone)]
pub struct Load {
    /// Also the name of the script.
    pub name: &'static str,
    pub method: &'static str,
    pub path: &'static str,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Option<String>,
    pub connections: u32,
    pub expect: Expect,
}

/// What makes a run worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Every answer is a 2xx.
    Success,
    /// Every answer is an error.
    Refusal,
}

/// What wrk saw.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Seen {
    pub requests: u64,
    pub duration_us: u64,
    pub bytes: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    /// Answers with a status above 399.
    not_2xx: u64,
    connect: u64,
    read: u64,
    write: u64,
    timeout: u64,
}

pub struct Wrk {
    program: PathBuf,
    scripts: PathBuf,
}

impl Wrk {
    pub fn new(program: PathBuf) -> Result<Self> {
        let scripts = paths::target("bench");
        std::fs::create_dir_all(&scripts)?;
        Ok(Self { program, scripts })
    }

    pub async fn run(&self, load: &Load, at: &Endpoint, lasting: Duration) -> Result<Seen> {
        let script = self.scripts.join(format!("{}.lua", load.name));
        std::fs::write(&script, load.script())?;
        let mut command = Command::from(run::command(&self.program));
        // One thread: it drives more than these servers can answer, and leaves them the other CPU.
        command
            .args(["-t", "1", "-c", &load.connections.to_string()])
            .args(["-d", &format!("{}s", lasting.as_secs())])
            .arg("-s")
            .arg(&script)
            .arg(format!("http://{at}{}", load.path))
            .kill_on_drop(true);
        let output = tokio::time::timeout(lasting + GRACE, command.output())
            .await
            .context("wrk did not end")??;
        if !output.status.success() {
            bail!("wrk failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let seen = Seen::read(&String::from_utf8_lossy(&output.stdout))?;
        seen.check(load.expect)?;
        Ok(seen)
    }
}

impl Load {
    fn script(&self) -> String {
        let mut text = format!("wrk.method = {}\n", quoted(self.method));
        for (name, value) in &self.headers {
            text.push_str(&format!("wrk.headers[{}] = {}\n", quoted(name), quoted(value)));
        }
        if let Some(body) = &self.body {
            text.push_str(&format!("wrk.body = {}\n", quoted(body)));
        }
        text + DONE
    }
}

/// A Lua string of printable ASCII.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Seen {
    fn read(output: &str) -> Result<Self> {
        let line = output.lines().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("wrk printed no report but {output:?}"))?;
        serde_json::from_str(line).with_context(|| format!("wrk's report {line:?}"))
    }

    fn check(&self, expect: Expect) -> Result<()> {
        if self.requests == 0 || self.duration_us == 0 {
            bail!("wrk got no answer");
        }
        let broken = self.connect + self.read + self.write + self.timeout;
        if broken > 0 {
            bail!("{broken} connections failed or timed out");
        }
        let successes = self.requests.saturating_sub(self.not_2xx);
        match expect {
            Expect::Success if self.not_2xx > 0 => {
                bail!("{} of {} answers were errors", self.not_2xx, self.requests)
            }
            Expect::Refusal if successes > 0 => {
                bail!("{successes} of {} answers were no refusals", self.requests)
            }
            _ => Ok(()),
        }
    }

    pub fn per_s(&self) -> f64 {
        self.requests as f64 * 1e6 / self.duration_us as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"requests":10,"duration_us":2000000,"bytes":1,"p50_us":7,"p99_us":9,"not_2xx":0,"connect":0,"read":0,"write":0,"timeout":0}"#;

    fn seen(line: &str) -> Seen {
        Seen::read(&format!("Running 1s test\n{line}\nTransfer/sec: 1\n")).unwrap()
    }

    #[test]
    fn the_report_is_found_among_wrks_own_lines() {
        let seen = seen(LINE);
        assert_eq!((seen.per_s(), seen.p50_us), (5.0, 7));
        assert!(Seen::read("Running 1s test\n").is_err());
    }

    #[test]
    fn a_run_in_which_something_else_happened_does_not_count() {
        assert!(seen(LINE).check(Expect::Success).is_ok());
        assert!(seen(LINE).check(Expect::Refusal).is_err());
        let refused = LINE.replace(r#""not_2xx":0"#, r#""not_2xx":10"#);
        assert!(seen(&refused).check(Expect::Success).is_err());
        assert!(seen(&refused).check(Expect::Refusal).is_ok());
        for broken in ["connect", "read", "write", "timeout"] {
            let line = LINE.replace(&format!(r#""{broken}":0"#), &format!(r#""{broken}":1"#));
            assert!(seen(&line).check(Expect::Success).is_err(), "{broken}");
        }
        assert!(seen(&LINE.replace(":10", ":0")).check(Expect::Success).is_err());
    }

    #[test]
    fn texts_survive_lua() {
        assert_eq!(quoted(r#"{"a":"\"}"#), r#""{\"a\":\"\\\"}""#);
    }
}
