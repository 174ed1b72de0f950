//! One process of the stack: its log, its end.
//!
//! It ends with xtask even if xtask is killed (on Linux, where the kernel can be asked for that),
//! and Ctrl-C in the terminal reaches xtask alone, which then ends the others in order.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::paths;

/// From being asked to end to being killed.
const GRACE: Duration = Duration::from_secs(3);
const LAST_LINES: usize = 20;

pub struct Child {
    pub name: String,
    pub pid: u32,
    /// Program and arguments, for someone who wants to start it again.
    pub command: Vec<String>,
    process: tokio::process::Child,
    log: PathBuf,
    end_was_told: bool,
}

impl Child {
    /// stderr goes to `NAME.log`; stdout to `NAME.out.log` (access logs, for a gateway), apart from
    /// it so that the lines of neither are torn.
    pub fn spawn(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = dir.join(format!("{name}.out.log"));
        command
            .current_dir(paths::root())
            .stdin(Stdio::null())
            .stdout(File::create(out)?)
            .stderr(File::create(&log)?)
            .process_group(0)
            .kill_on_drop(true);
        end_with_parent(&mut command);
        let std = command.as_std();
        let words = std::iter::once(std.get_program()).chain(std.get_args());
        let words = words.map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = words.collect();
        let process =
            command.spawn().with_context(|| format!("{name}: cannot start {}", words[0]))?;
        Ok(Self {
            name: name.to_owned(),
            pid: process.id().context("a new process has an id")?,
            command: words,
            process,
            log,
            end_was_told: false,
        })
    }

    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// Like [`Self::ended`], but only once.
    pub fn newly_ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.end_was_told {
            return Ok(None);
        }
        let ended = self.ended()?;
        self.end_was_told = ended.is_some();
        Ok(ended)
    }

    /// The end of its log, or what it printed if it logged nothing.
    pub fn last_words(&self) -> String {
        let out = self.log.with_extension("out.log");
        let text = [&self.log, &out]
            .into_iter()
            .map(|file| {
                String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
            })
            .find(|text| !text.is_empty())
            .unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        format!("{}\n({})", last.join("\n"), paths::shown(&self.log))
    }

    pub fn ask_to_end(&self) {
        // A process that has been waited for has no id any more: its number may be another's.
        if let Some(pid) = self.process.id() {
            signal(pid, libc::SIGTERM);
            // One that a test has stopped would not notice.
            signal(pid, libc::SIGCONT);
        }
    }

    pub async fn end(&mut self) {
        if tokio::time::timeout(GRACE, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
    }
}

fn signal(pid: u32, number: libc::c_int) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill only takes numbers.
        unsafe { libc::kill(pid, number) };
    }
}

pub fn is_alive(pid: i32) -> bool {
    // SAFETY: kill with signal 0 only asks whether the process exists.
    unsafe { libc::kill(pid, 0) == 0 }
}

#[cfg(target_os = "linux")]
fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask_kernel = move || {
        // SAFETY: prctl and getppid take and give numbers, and are safe between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before the kernel was asked.
            if libc::getppid().unsigned_abs() != parent {
                return Err(std::io::Error::other("xtask has ended"));
            }
        }
        Ok(())
    };
    // SAFETY: the closure neither allocates nor locks.
    unsafe { command.pre_exec(ask_kernel) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_: &mut Command) {}
