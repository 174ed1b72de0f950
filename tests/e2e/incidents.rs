//! What happened in the field, again: a load, a fault, and the right behaviour. `docs/lab.md` lists
//! all of them and where each is shown.

use std::time::Duration;

use lab::{Arrivals, Stream, Summary};
use serde_json::json;

use crate::harness::{
    Stack, ms,
    noise::{check, on_a_calm_machine, send_beside_control, template_with_noop},
    sim::Arrival,
};

/// A 429 of the provider travels: provider, gateway, decider, other gateway.
const ROUND_TRIP: Duration = ms(100);

fn two_gateways_one_redis() -> Stack {
    let template = template_with_noop().write();
    let gateways = ["--gateways", "2", "--workers", "2", "--envoy", &template];
    Stack::up(&[&gateways[..], &["--deciders", "2", "--redis"]].concat())
}

/// More than the contract, at rates that differ, so that every gateway gets both classes.
fn both_classes(lasting: Duration) -> [Stream; 2] {
    let even = |per_s| Arrivals::Even { per_s, lasting };
    [("otp", 110.0), ("marketing", 190.0)].map(|(class, per_s)| Stream::new(class, even(per_s)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_stays_within_the_contract_when_one_gateway_loses_the_decider() {
    on_a_calm_machine(async || {
        let stack = two_gateways_one_redis();
        let fault = async {
            tokio::time::sleep(ms(1_500)).await;
            stack.signal("decider-1", libc::SIGSTOP);
            tokio::time::sleep(ms(3_000)).await;
            stack.signal("decider-1", libc::SIGCONT);
        };
        let load = both_classes(ms(6_000));
        let ((run, noise), ()) = tokio::join!(send_beside_control(&stack, &load), fault);
        let summary = Summary::of(run.sent.iter());
        assert_eq!(summary.failed() + summary.not_sent, 0, "{:?}", summary.other_statuses);
        let alone = stack.counted("otp.fallback").await + stack.counted("marketing.fallback").await;
        assert!(alone > 0, "nobody was cut off");
        stack.assert_filter_is_well().await;
        (noise, stack.sim.report().await.within_contract())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_phase_a_burst_after_idle_stays_within_every_window() {
    on_a_calm_machine(async || {
        let stack = two_gateways_one_redis();
        let mut noises = None;
        let mut checked = Ok(());
        for phase in ["0ms", "370ms", "900ms"] {
            stack.sim.set(json!({ "model": "fixed", "phase": phase })).await;
            stack.sim.reset().await;
            let mut late = Stream::new("otp", Arrivals::AtOnce { count: 200 });
            late.starts_after = ms(900);
            let mut on = Stream::new("otp", Arrivals::Even { per_s: 200.0, lasting: ms(1_500) });
            on.starts_after = ms(901);
            let (_, noise) = send_beside_control(&stack, &[late, on]).await;
            let report = stack.sim.report().await;
            assert!(report.total.accepted >= 90, "{phase}: {}", report.total.accepted);
            checked = checked.and_then(|()| report.within_contract());
            noises = Some(noise);
        }
        (noises.expect("three phases"), checked)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_429_stops_all_within_a_round_trip_and_the_return_is_no_stampede() {
    on_a_calm_machine(async || {
        let stack = two_gateways_one_redis();
        let fault = async {
            tokio::time::sleep(ms(800)).await;
            stack.sim.force(1, 429, &[("retry-after", "1")]).await;
        };
        let load = both_classes(ms(2_600));
        let ((_, noise), ()) = tokio::join!(send_beside_control(&stack, &load), fault);
        let arrivals = stack.sim.log().await;
        let refused = arrivals.iter().find(|one| one.status == 429).expect("a refusal").at();
        let during = |from: Duration, to: Duration| {
            arrivals.iter().filter(|one| (from..to).contains(&one.at())).count()
        };
        let stopped = during(refused + ROUND_TRIP, refused + ms(1_000));
        let back = arrivals.iter().map(|one| one.at()).find(|at| *at >= refused + ms(1_000));
        let back = back.expect("traffic goes on");
        let first = during(back, back + ms(100));
        println!("{stopped} came during the stop, {first} in the first 100 ms after it");
        let checked = check(stopped == 0, || format!("{stopped} came during the stop"))
            // The burst and a tenth of the target.
            .and_then(|()| check(first <= 14, || format!("{first} in the first 100 ms")));
        (noise, checked)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_that_count_keep_nobody_out_for_ever() {
    let stack = two_gateways_one_redis();
    // Half of what the policy aims for, and refusals count against it too.
    stack.sim.set(json!({ "model": "rolling", "limit": 50, "count_refused": true })).await;
    let (run, _) = send_beside_control(&stack, &both_classes(ms(6_500))).await;
    let summary = Summary::of(run.sent.iter());
    assert_eq!(summary.failed() + summary.not_sent, 0, "{:?}", summary.other_statuses);
    let report = stack.sim.report().await;
    assert!(report.total.refused > 0, "the provider never refused");
    assert!(!report.suspended, "{report:?}");
    let log = stack.sim.log().await;
    let late = |one: &&Arrival| one.at() > ms(4_000) && one.status == 200;
    assert!(log.iter().filter(late).count() >= 50, "nothing was accepted after the stops");
}
