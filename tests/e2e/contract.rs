//! The provider never sees more than it sold, and most of the target is used.

use lab::{Arrivals, Stream, Summary, Target};

use crate::harness::{Stack, ms};

/// 300 requests/s for 5 s over all gateways of `stack`; at rates that differ, so that every gateway
/// gets both classes.
async fn keeps_the_contract(stack: &Stack) {
    let even = |per_s| Arrivals::Even { per_s, lasting: ms(5_000) };
    let streams = [("otp", 130.0), ("marketing", 170.0)]
        .map(|(class, per_s)| Stream::new(class, even(per_s)));
    let run = lab::send(&Target::new(&stack.ready.gateways), &streams).await;
    let summary = Summary::of(run.sent.iter());
    let report = stack.sim.report().await;
    println!(
        "sent {}, refused here {}, provider saw {} ({} in the worst 1 s)",
        summary.sent, summary.refused, report.total.arrivals, report.total.max_in_any_1s
    );
    report.assert_within_contract();
    assert_eq!(summary.failed() + summary.not_sent, 0, "{:?}", summary.other_statuses);
    // 85 % of 90/s for 5 s.
    assert!(report.total.accepted >= 383, "only {} of 450 used", report.total.accepted);
    assert_eq!(report.total.accepted, summary.passed as u64);
    stack.assert_filter_is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_times_the_contract_over_two_gateways_and_one_redis_stays_within_it() {
    let stack = Stack::up(&["--gateways", "2", "--deciders", "2", "--redis"]);
    keeps_the_contract(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_keeps_the_contract_for_two_gateways_too() {
    let stack = Stack::up(&["--gateways", "2"]);
    keeps_the_contract(&stack).await;
}
