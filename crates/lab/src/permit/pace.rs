//! One process by itself: a fixed time between any two.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Clones share the schedule.
#[derive(Clone)]
pub(crate) struct Pace {
    interval: Duration,
    next: Arc<Mutex<Option<Instant>>>,
}

impl Pace {
    pub fn new(per_s: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_s, next: Arc::default() }
    }

    pub async fn pass(&mut self) {
        sleep_until(self.reserve(Instant::now())).await;
    }

    /// Idle time earns nothing: after a pause the schedule starts anew.
    fn reserve(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.map_or(now, |next| next.max(now));
        *next = Some(at + self.interval);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_one_interval_apart_and_idle_time_earns_none() {
        let pace = Pace::new(100);
        let start = Instant::now();
        let after = |at: Instant| (at - start).as_millis();
        assert_eq!(after(pace.reserve(start)), 0);
        assert_eq!(after(pace.clone().reserve(start)), 10);
        let later = start + Duration::from_secs(1);
        assert_eq!(after(pace.reserve(later)), 1_000);
        assert_eq!(after(pace.reserve(later)), 1_010);
    }
}
