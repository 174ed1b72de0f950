//! Keeps a log line from being written for every request: at most one per second.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

pub struct Sparse {
    start: Instant,
    /// Whole seconds since `start`, plus one, of the last line; 0 before the first.
    last: AtomicU64,
}

impl Default for Sparse {
    fn default() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Sparse {
    /// True for the first caller in each second.
    pub fn is_due(&self) -> bool {
        let now = self.start.elapsed().as_secs() + 1;
        self.last.fetch_max(now, Ordering::Relaxed) < now
    }
}
