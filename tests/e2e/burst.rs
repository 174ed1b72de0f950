//! What passes at once from idle, and what idle time is worth.

use std::time::Duration;

use crate::harness::{Answer, Stack, call::burst, ms};

/// As the sample policy has it.
const BURST: usize = 5;
const AT_ONCE: usize = 20;
/// Longer than the whole burst takes to be earned again: 5 / 70 s.
const IDLE: Duration = ms(500);
const ATTEMPTS: usize = 8;

/// Sends [`AT_ONCE`] requests at the same moment until all are answered before the next one could
/// be earned, on a busy machine not at the first attempt: only then "at once" was at once.
async fn answers_at_once(stack: &Stack, class: &str, interval: Duration) -> Vec<Answer> {
    for _ in 0..ATTEMPTS {
        tokio::time::sleep(IDLE).await;
        stack.sim.reset().await;
        let (answers, took) = burst(stack.gateway(0), class, AT_ONCE).await;
        let arrived = stack.sim.report().await.total.arrivals;
        let earned = (took.as_micros() / interval.as_micros()) as usize;
        assert!((arrived as usize) <= BURST + earned, "{arrived} in {took:?}");
        if took < interval {
            return answers;
        }
        println!("void: {AT_ONCE} answers took {took:?}");
    }
    panic!("this machine is too busy to send {AT_ONCE} requests within {interval:?}");
}

async fn exactly_the_burst_passes(stack: &Stack, class: &str, interval_us: u64, reason: &str) {
    let interval = Duration::from_micros(interval_us);
    let answers = answers_at_once(stack, class, interval).await;
    let passed = answers.iter().filter(|answer| answer.passed()).count();
    assert_eq!(passed, BURST, "{class}");
    assert_eq!(stack.sim.report().await.of(class).accepted as usize, BURST, "{class}");
    for refused in answers.iter().filter(|answer| !answer.passed()) {
        assert_eq!(refused.status, 429);
        assert_eq!(refused.reason().as_deref(), Some(reason));
        let wait = refused.retry_after().expect("retry-after-ms");
        // Of the interval, what passed since the burst is gone.
        let whole = ms(interval_us.div_ceil(1_000));
        assert!(wait > Duration::ZERO && wait <= whole, "{class}: {wait:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_idle_exactly_the_burst_passes_and_the_next_waits_one_interval() {
    let stack = Stack::up(&["--workers", "2"]);
    exactly_the_burst_passes(&stack, "otp", 11_112, "rate").await;
    exactly_the_burst_passes(&stack, "marketing", 14_286, "class_rate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_time_earns_no_more_than_the_burst() {
    let stack = Stack::up(&["--workers", "2"]);
    exactly_the_burst_passes(&stack, "otp", 11_112, "rate").await;
    tokio::time::sleep(ms(4_000)).await;
    exactly_the_burst_passes(&stack, "otp", 11_112, "rate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_burst_is_the_same_with_redis() {
    let stack = Stack::up(&["--redis", "--workers", "2"]);
    exactly_the_burst_passes(&stack, "otp", 11_112, "rate").await;
    exactly_the_burst_passes(&stack, "marketing", 14_286, "class_rate").await;
}
