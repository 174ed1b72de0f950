//! Some gateways cannot reach the decider, or none can: the contract holds in every window, and with
//! a leased fallback each goes on at its share of the target.

use std::time::Duration;

use lab::{Arrivals, Run, Stream, Summary};
use serde_json::json;

use crate::harness::{
    Stack,
    call::burst,
    files::policy,
    ms,
    noise::{
        Noise, check, on_a_calm_machine, send_beside_control, send_beside_control_to,
        template_with_noop,
    },
};

type Checked = Result<(), String>;

/// Of the target of 90/s, for each of two gateways.
const SHARE_PER_S: f64 = 45.0;
/// From a gateway's last ask to the beginning of its share: the lease, thrice the time-out, and a
/// hundredth.
const DARK: Duration = ms(770);

/// Two gateways, each with a decider of its own on one Redis.
fn up(forget_after: &str) -> Stack {
    let policy = policy(|policy| {
        policy["limits"][0]["fallback"] = json!({ "lease": "600ms", "forget_after": forget_after });
    });
    let template = template_with_noop().write();
    let stack = ["--gateways", "2", "--deciders", "2", "--redis", "--envoy", &template];
    Stack::up(&[&stack[..], &["--policy", &policy]].concat())
}

/// More than the target for both gateways, of both classes.
async fn load(stack: &Stack, lasting: Duration) -> (Run, Noise) {
    let even = |per_s| Arrivals::Even { per_s, lasting };
    let streams =
        [("otp", 80.0), ("marketing", 160.0)].map(|(class, per_s)| Stream::new(class, even(per_s)));
    send_beside_control(stack, &streams).await
}

/// What a gateway has sent on its own.
async fn own(stack: &Stack, gateway: usize) -> u64 {
    let stats = stack.stats(gateway).await;
    let counters = stats.iter().filter(|(name, _)| name.ends_with(".fallback"));
    counters.map(|(_, count)| count).sum()
}

/// Counts per second, of each gateway on its own and at the provider, over `lasting`.
async fn pace(stack: &Stack, lasting: Duration) -> ([f64; 2], f64) {
    let count = async || {
        let own = [own(stack, 0).await, own(stack, 1).await];
        (own, stack.sim.report().await)
    };
    let (own_before, before) = count().await;
    tokio::time::sleep(lasting).await;
    let (own_after, after) = count().await;
    let seconds = after.elapsed_s - before.elapsed_s;
    let own = [0, 1].map(|gateway| (own_after[gateway] - own_before[gateway]) as f64 / seconds);
    (own, (after.total.arrivals - before.total.arrivals) as f64 / seconds)
}

fn close(value: f64, to: f64) -> bool {
    (value - to).abs() <= 0.2 * to
}

fn all_answered(run: &Run) -> Checked {
    let summary = Summary::of(run.sent.iter());
    let failed = summary.failed() + summary.not_sent;
    check(failed == 0, || format!("{failed} without an answer, {:?}", summary.other_statuses))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_cut_off_goes_on_at_its_share_and_the_other_keeps_it_free() {
    on_a_calm_machine(async || {
        let stack = up("1m");
        let events = async {
            tokio::time::sleep(ms(1_200)).await;
            stack.signal("decider-1", libc::SIGSTOP);
            tokio::time::sleep(DARK + ms(300)).await;
            let cut_off = pace(&stack, ms(2_000)).await;
            stack.signal("decider-1", libc::SIGCONT);
            tokio::time::sleep(ms(2_000)).await;
            (cut_off, pace(&stack, ms(1_000)).await)
        };
        let ((run, noise), (cut_off, back)) = tokio::join!(load(&stack, ms(7_600)), events);
        println!("cut off: {cut_off:?}, back: {back:?}");
        let report = stack.sim.report().await;
        stack.assert_filter_is_well().await;
        let ([first, second], together) = cut_off;
        let checked = report
            .within_contract()
            .and_then(|()| all_answered(&run))
            .and_then(|()| check(first == 0.0, || format!("the other sent {first}/s unasked")))
            .and_then(|()| check(close(second, SHARE_PER_S), || format!("its share: {second}/s")))
            .and_then(|()| check(close(together, 90.0), || format!("together {together}/s")))
            .and_then(|()| {
                check(back.0 == [0.0, 0.0] && close(back.1, 90.0), || {
                    format!("after the return: {back:?}")
                })
            });
        (noise, checked)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_decider_all_gateways_together_go_on_at_the_target() {
    on_a_calm_machine(async || {
        let stack = up("1m");
        let events = async {
            tokio::time::sleep(ms(1_200)).await;
            stack.signal("redis", libc::SIGKILL);
            tokio::time::sleep(DARK + ms(300)).await;
            let alone = pace(&stack, ms(2_000)).await;
            // It comes back empty, and while it knows nobody it takes everyone for missing.
            let redis = stack.start_again("redis");
            tokio::time::sleep(ms(2_000)).await;
            (alone, pace(&stack, ms(1_000)).await, redis)
        };
        let ((run, noise), (alone, back, _redis)) = tokio::join!(load(&stack, ms(7_600)), events);
        println!("alone: {alone:?}, back: {back:?}");
        let report = stack.sim.report().await;
        stack.assert_filter_is_well().await;
        let (own, together) = alone;
        let shares = own.iter().all(|own| close(*own, SHARE_PER_S));
        let checked = report
            .within_contract()
            .and_then(|()| all_answered(&run))
            .and_then(|()| check(shares, || format!("on their own: {own:?}")))
            .and_then(|()| check(close(together, 90.0), || format!("together {together}/s")))
            .and_then(|()| {
                check(back.0 == [0.0, 0.0] && close(back.1, 90.0), || {
                    format!("after the return: {back:?}")
                })
            });
        (noise, checked)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_out_of_use_leaves_its_share_to_the_others() {
    on_a_calm_machine(async || {
        // A store without memory knows after 2.1 s that nobody is missing.
        let stack = up("1500ms");
        let events = async {
            for _ in 0..25 {
                burst(stack.gateway(1), "otp", 1).await;
                tokio::time::sleep(ms(100)).await;
            }
            // Three seconds later it leaves. Had it only fallen silent, its share would be kept
            // free from 3.6 s to 5.1 s.
            tokio::time::sleep(ms(3_750)).await;
            pace(&stack, ms(1_200)).await
        };
        let even = Arrivals::Even { per_s: 120.0, lasting: ms(7_700) };
        let streams = [Stream::new("otp", even)];
        let sent = send_beside_control_to(&stack, 1, &streams);
        let ((run, noise), (_, together)) = tokio::join!(sent, events);
        let checked = all_answered(&run)
            .and_then(|()| check(close(together, 90.0), || format!("the other got {together}/s")));
        (noise, checked)
    })
    .await;
}
