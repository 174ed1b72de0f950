//! Ports nobody else takes, also while several stacks start at the same time.
//!
//! A port that was free a moment ago may be taken when the process that wants it gets to bind.
//! Two things make sure it is not: other runs of xtask respect the lock file we hold for it, and
//! the numbers lie below those that the kernel gives to outgoing connections.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::run;

/// Linux gives outgoing connections 32768 and above, macOS 49152.
const FREE: std::ops::Range<u16> = 20_000..32_000;

pub struct Ports {
    ephemeral: bool,
    dir: PathBuf,
    next: u16,
    /// Locked as long as they live.
    held: Vec<File>,
}

impl Ports {
    pub fn new(ephemeral: bool) -> Result<Self> {
        // In the system's directory for such files, not ours: stacks of several checkouts meet.
        // SAFETY: geteuid reads one number and cannot fail.
        let user = unsafe { libc::geteuid() };
        let dir = std::env::temp_dir().join(format!("weir-ports-{user}"));
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        // Runs that start together look in different places first.
        let spread = std::process::id().wrapping_mul(37) % u32::from(FREE.end - FREE.start);
        Ok(Self { ephemeral, dir, next: FREE.start + u16::try_from(spread)?, held: Vec::new() })
    }

    /// The usual port if it is free, and free ones are not asked for anyway.
    pub fn take(&mut self, name: &str, usual: u16) -> Result<u16> {
        if !self.ephemeral {
            if self.hold(usual)? {
                return Ok(usual);
            }
            let port = self.free()?;
            run::say(format!("port {usual} is taken: {name} listens on {port}"));
            return Ok(port);
        }
        self.free()
    }

    pub fn free(&mut self) -> Result<u16> {
        for _ in FREE {
            let port = self.next;
            self.next = if port + 1 == FREE.end { FREE.start } else { port + 1 };
            if self.hold(port)? {
                return Ok(port);
            }
        }
        bail!("no port from {} to {} is free", FREE.start, FREE.end - 1)
    }

    fn hold(&mut self, port: u16) -> Result<bool> {
        let lock = File::create(self.dir.join(port.to_string()))?;
        if lock.try_lock().is_err() || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            return Ok(false);
        }
        self.held.push(lock);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let mut one = Ports::new(true).unwrap();
        let mut other = Ports::new(true).unwrap();
        let mut given: Vec<u16> =
            (0..5).flat_map(|_| [one.free().unwrap(), other.free().unwrap()]).collect();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 10);
    }

    #[test]
    fn a_usual_port_that_is_taken_is_replaced() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let usual = taken.local_addr().unwrap().port();
        let port = Ports::new(false).unwrap().take("test", usual).unwrap();
        assert_ne!(port, usual);
        assert!(FREE.contains(&port));
    }
}
