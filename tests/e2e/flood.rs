//! What is refused costs the decider next to nothing and the provider nothing.

use lab::{Arrivals, Stream, Summary, Target};

use crate::harness::{Stack, ms};

const REFUSED_AT_LEAST: usize = 10_000;

/// Sends so many more than may pass that 10,000 are refused, and counts the calls.
async fn costs_at_most_two_calls_per_grant(stack: &Stack, streams: &[Stream]) {
    let run = lab::send(&Target::new(&stack.ready.gateways), streams).await;
    let summary = Summary::of(run.sent.iter());
    let calls = stack.counted("calls").await;
    let granted = stack.counted("otp.granted").await + stack.counted("marketing.granted").await;
    println!("{} refused, {granted} granted, {calls} calls", summary.refused);
    assert_eq!(summary.failed(), 0, "{:?}", summary.other_statuses);
    assert_eq!(summary.not_sent, 0, "the machine is too slow for this flood");
    assert!(summary.refused >= REFUSED_AT_LEAST);
    assert!(calls <= 2 * granted + 50, "{calls} calls for {granted} grants");
    let report = stack.sim.report().await;
    report.assert_within_contract();
    assert_eq!(report.total.arrivals, granted);
    stack.assert_filter_is_well().await;
}

fn flood(class: &str, per_s: f64) -> Stream {
    Stream::new(class, Arrivals::Even { per_s, lasting: ms(4_000) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_marketing_costs_at_most_two_calls_per_grant() {
    let stack = Stack::up(&["--redis", "--workers", "2"]);
    costs_at_most_two_calls_per_grant(&stack, &[flood("marketing", 2_700.0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_over_two_gateways_costs_at_most_two_calls_per_grant() {
    let args = ["--gateways", "2", "--deciders", "2", "--redis", "--workers", "2"];
    let stack = Stack::up(&args);
    costs_at_most_two_calls_per_grant(&stack, &[flood("marketing", 2_700.0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_all_classes_costs_at_most_two_calls_per_grant() {
    let args = ["--gateways", "2", "--deciders", "2", "--redis", "--workers", "2"];
    let stack = Stack::up(&args);
    let streams = [flood("marketing", 1_500.0), flood("otp", 1_300.0)];
    costs_at_most_two_calls_per_grant(&stack, &streams).await;
}
