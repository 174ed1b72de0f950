//! One process by itself: a fixed time between any two.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

pub(crate) struct Pace {
    interval: Duration,
    next: Option<Instant>,
}

impl Pace {
    pub fn new(per_s: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_s, next: None }
    }

    pub async fn pass(&mut self) {
        let now = Instant::now();
        // Idle time earns nothing: after a pause the schedule starts anew.
        let at = self.next.map_or(now, |next| next.max(now));
        self.next = Some(at + self.interval);
        sleep_until(at).await;
    }
}
