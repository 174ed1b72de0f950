//! The provider never sees more than it sold, and most of the target is used.

use lab::{Arrivals, Stream, Summary};

use crate::harness::{
    Stack, ms,
    noise::{check, on_a_calm_machine, send_beside_control, template_with_noop},
};

/// 300 requests/s for 5 s over two gateways; at rates that differ, so that every gateway gets both
/// classes.
async fn the_contract_is_kept(args: &[&str]) {
    on_a_calm_machine(async || {
        let template = template_with_noop().write();
        let common = ["--gateways", "2", "--workers", "2", "--envoy", &template];
        let stack = Stack::up(&[&common, args].concat());
        let even = |per_s| Arrivals::Even { per_s, lasting: ms(5_000) };
        let streams = [("otp", 130.0), ("marketing", 170.0)]
            .map(|(class, per_s)| Stream::new(class, even(per_s)));
        let (run, noise) = send_beside_control(&stack, &streams).await;
        let summary = Summary::of(run.sent.iter());
        let report = stack.sim.report().await;
        let accepted = report.total.accepted;
        println!(
            "sent {}, refused here {}, provider took {accepted} ({} in the worst 1 s)",
            summary.sent, summary.refused, report.total.max_in_any_1s
        );
        assert_eq!(summary.failed() + summary.not_sent, 0, "{:?}", summary.other_statuses);
        assert_eq!(report.total.arrivals, summary.passed as u64);
        stack.assert_filter_is_well().await;
        // 85 % of 90/s for 5 s.
        let checked = report
            .within_contract()
            .and_then(|()| check(accepted >= 383, || format!("only {accepted} of 450 used")));
        (noise, checked)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_times_the_contract_over_two_gateways_and_one_redis_stays_within_it() {
    the_contract_is_kept(&["--deciders", "2", "--redis"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_keeps_the_contract_for_two_gateways_too() {
    the_contract_is_kept(&[]).await;
}
