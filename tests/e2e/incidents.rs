//! What happened in the field, again: a load, a fault, and the right behaviour. `docs/lab.md` lists
//! all of them and where each is shown.

use std::time::{Duration, Instant};

use lab::{Arrivals, Sent, Stream, Summary, http::Client};
use serde_json::json;
use tokio::task::JoinSet;

use crate::decider_away::clock;
use crate::harness::{
    Stack, call, ms,
    noise::{answered, check, on_a_calm_machine, send_beside_control, template_with_noop},
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

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_for_30_s_nobody_waits_a_time_out_and_otp_trickles() {
    on_a_calm_machine(async || {
        let stack = two_gateways_one_redis();
        let (before, away) = (ms(1_000), ms(30_000));
        let fault = async {
            tokio::time::sleep(before).await;
            stack.signal("redis", libc::SIGKILL);
            let left_at = clock(&stack).await;
            tokio::time::sleep(away).await;
            (left_at, clock(&stack).await, stack.start_again("redis"))
        };
        let load = both_classes(before + away + ms(2_000));
        let ((run, noise), (left_at, back_at, _redis)) =
            tokio::join!(send_beside_control(&stack, &load), fault);
        stack.assert_filter_is_well().await;
        // Nearly a time-out: the failure that opens the breaker, and probes.
        let waited = |sent: &&Sent| sent.took.saturating_sub(noise.beside(sent)) > ms(30);
        let waited = run.sent.iter().filter(waited).count();
        let (report, log) = (stack.sim.report().await, stack.sim.log().await);
        let during = |one: &&Arrival| (left_at + ms(1_000)..back_at).contains(&one.at());
        let arrived = log.iter().filter(during).count();
        let late = |one: &&Arrival| one.class == "otp" && one.at() > back_at - ms(10_000);
        let otp = log.iter().filter(during).filter(late).count();
        println!(
            "{waited} of {} waited, {arrived} arrived in 29 s, {otp} OTP in the last 10 s",
            run.sent.len()
        );
        let checked = answered(&run, &noise)
            .and_then(|()| report.within_contract())
            .and_then(|()| check(waited * 100 < run.sent.len(), || format!("{waited} waited")))
            .and_then(|()| check(arrived <= 90 * 29, || format!("{arrived} in 29 s")))
            .and_then(|()| check(otp >= 5, || format!("{otp} OTP in the last 10 s")));
        (noise, checked)
    })
    .await;
}

/// One process of a campaign: it sends, waits as long as it is told, and sends again.
async fn pod(gateway: String, until: Instant) {
    let client = Client::default();
    while Instant::now() < until {
        let answer = call(&client, &gateway, &[("x-priority", "marketing")]).await;
        assert!(answer.passed() || answer.status == 429, "{}", answer.status);
        if let Some(told) = answer.retry_after() {
            tokio::time::sleep(told).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_scale_from_2_to_16_to_23_and_surge_and_the_total_does_not_change() {
    // The last are surge pods of a roll-out.
    const SENDERS: [usize; 4] = [2, 16, 23, 29];
    const STEP: Duration = ms(2_500);
    on_a_calm_machine(async || {
        let stack = two_gateways_one_redis();
        let all = STEP * SENDERS.len() as u32;
        let start = clock(&stack).await;
        let until = Instant::now() + all;
        let campaign = async {
            let mut pods = JoinSet::new();
            for senders in SENDERS {
                for number in pods.len()..senders {
                    pods.spawn(pod(stack.gateway(number % 2).to_owned(), until));
                }
                tokio::time::sleep(STEP).await;
            }
            pods.join_all().await;
        };
        let otp = [Stream::new("otp", Arrivals::Even { per_s: 10.0, lasting: all })];
        let ((_, noise), ()) = tokio::join!(send_beside_control(&stack, &otp), campaign);
        let arrivals = stack.sim.arrivals().await;
        // The first half second of a step is not judged: new pods connect.
        let in_2_s = |step: u32| {
            let from = start + STEP * step + ms(500);
            arrivals.iter().filter(|at| (from..from + ms(2_000)).contains(*at)).count()
        };
        let totals = [0, 1, 2, 3].map(in_2_s);
        println!("{SENDERS:?} senders: {totals:?} in 2 s each");
        let report = stack.sim.report().await;
        // 70/s of marketing and 10/s of OTP.
        let as_ever = |total: &usize| (144..=168).contains(total);
        let checked = report
            .within_contract()
            .and_then(|()| check(totals.iter().all(as_ever), || format!("{totals:?}")));
        (noise, checked)
    })
    .await;
}
