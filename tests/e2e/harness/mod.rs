//! What the tests share: a stack that is started and ended, the provider's report, callers.

pub mod call;
pub mod certs;
pub mod decider;
pub mod files;
pub mod network;
pub mod noise;
pub mod python;
pub mod sim;
pub mod stack;

use std::time::{Duration, Instant};

pub use call::{Answer, call};
pub use sim::Sim;
pub use stack::Stack;

/// Asks again and again until there is an answer.
///
/// # Panics
/// If there is none within `limit`.
pub async fn eventually<T>(
    limit: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    const EVERY: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(EVERY).await;
    }
}

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
