//! What is refused costs the decider next to nothing and the provider nothing.

use lab::{Arrivals, Stream, Summary};

use crate::harness::{
    Stack,
    call::burst,
    ms,
    noise::{Noise, check, on_a_calm_machine, send_beside_control, template_with_noop},
};

const REFUSED_AT_LEAST: usize = 10_000;

/// Sends so many more than may pass that 10,000 are refused, and counts the calls.
async fn flood(args: &[&str], streams: &[Stream]) -> (Noise, Result<(), String>) {
    let template = template_with_noop().write();
    let stack = Stack::up(&[args, &["--redis", "--workers", "2", "--envoy", &template]].concat());
    let (run, noise) = send_beside_control(&stack, streams).await;
    let summary = Summary::of(run.sent.iter());
    let of_all = async |what| {
        let [otp, marketing] = ["otp", "marketing"].map(|class| format!("{class}.{what}"));
        stack.counted(&otp).await + stack.counted(&marketing).await
    };
    let (calls, granted, alone) =
        (stack.counted("calls").await, of_all("granted").await, of_all("fallback").await);
    println!("{} refused, {granted} granted, {alone} alone, {calls} calls", summary.refused);
    assert_eq!(summary.failed(), 0, "{:?}", summary.other_statuses);
    assert!(calls <= 2 * granted + 50, "{calls} calls for {granted} grants");
    let report = stack.sim.report().await;
    assert_eq!(report.total.arrivals, granted + alone);
    stack.assert_filter_is_well().await;
    // Short of time a decider is late, and then a gateway goes on alone: that is another test's.
    let checked = check(summary.refused >= REFUSED_AT_LEAST, || "the flood was too small".into())
        .and_then(|()| report.within_contract())
        .and_then(|()| check(granted >= 250, || format!("only {granted} granted")));
    (noise, checked)
}

fn of(class: &str, per_s: f64) -> Stream {
    Stream::new(class, Arrivals::Even { per_s, lasting: ms(4_000) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_marketing_costs_at_most_two_calls_per_grant() {
    on_a_calm_machine(async || flood(&[], &[of("marketing", 2_700.0)]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_over_two_gateways_beside_otp_costs_at_most_two_calls_per_grant() {
    let two = ["--gateways", "2", "--deciders", "2"];
    let streams = [of("marketing", 2_700.0), of("otp", 20.0)];
    on_a_calm_machine(async || flood(&two, &streams).await).await;
}

/// What is decided at once is told in many turns: told in one, it exhausts the virtual machine's stack.
#[tokio::test(flavor = "multi_thread")]
async fn eight_hundred_at_once_on_one_worker_are_all_answered() {
    let stack = Stack::up(&["--workers", "1"]);
    for _ in 0..3 {
        let (answers, _) = burst(stack.gateway(0), "otp", 800).await;
        let odd = answers.iter().map(|answer| answer.status).find(|s| ![200, 429].contains(s));
        assert_eq!(odd, None, "neither yes nor an honest no");
    }
    stack.assert_filter_is_well().await;
}
