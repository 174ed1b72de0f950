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

/// Traffic while something is away, and after its return. Meanwhile each gateway sends its part of
/// `own` (per second) without asking; together they go on at the target.
async fn outage<T>(
    stack: &Stack,
    leave: impl FnOnce(),
    come_back: impl FnOnce() -> T,
    own: [f64; 2],
) -> (Noise, Checked) {
    let events = async {
        tokio::time::sleep(ms(1_200)).await;
        leave();
        tokio::time::sleep(DARK + ms(300)).await;
        let away = pace(stack, ms(2_000)).await;
        let guard = come_back();
        tokio::time::sleep(ms(2_000)).await;
        (away, pace(stack, ms(1_000)).await, guard)
    };
    let ((run, noise), (away, back, _guard)) = tokio::join!(load(stack, ms(7_600)), events);
    println!("away: {away:?}, back: {back:?}");
    let report = stack.sim.report().await;
    stack.assert_filter_is_well().await;
    let as_told = |(sent, together): ([f64; 2], f64), own: [f64; 2]| {
        close(sent[0], own[0]) && close(sent[1], own[1]) && close(together, 90.0)
    };
    let checked = report
        .within_contract()
        .and_then(|()| all_answered(&run))
        .and_then(|()| check(as_told(away, own), || format!("away: {away:?}")))
        .and_then(|()| check(as_told(back, [0.0; 2]), || format!("after the return: {back:?}")));
    (noise, checked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_cut_off_goes_on_at_its_share_and_the_other_keeps_it_free() {
    on_a_calm_machine(async || {
        let stack = up("1m");
        let leave = || stack.signal("decider-1", libc::SIGSTOP);
        let come_back = || stack.signal("decider-1", libc::SIGCONT);
        outage(&stack, leave, come_back, [0.0, SHARE_PER_S]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_decider_all_gateways_together_go_on_at_the_target() {
    on_a_calm_machine(async || {
        let stack = up("1m");
        let leave = || stack.signal("redis", libc::SIGKILL);
        // It comes back empty, and while it knows nobody it takes everyone for missing.
        outage(&stack, leave, || stack.start_again("redis"), [SHARE_PER_S; 2]).await
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
