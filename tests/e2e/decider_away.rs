//! The decider or its store is away: no request hangs, traffic goes on at the gateway's own share,
//! and everything is as before soon after the return.

use std::time::{Duration, Instant};

use lab::{Arrivals, Run, Stream};

use crate::harness::{
    Stack,
    decider::{BadDecider, Mode},
    ms,
    noise::{
        Checked, Noise, answered, check, on_a_calm_machine, send_beside_control, template_with_noop,
    },
};

pub const RECOVERED_WITHIN: Duration = ms(2_000);
/// Of each of the two gateways of the sample policy: one per 510,001 µs.
const OWN_SHARE_PER_S: f64 = 1.96;

/// 200/s, which is more than the target. At rates that differ, every gateway gets both classes.
pub async fn load(stack: &Stack, lasting: Duration) -> (Run, Noise) {
    let even = |per_s| Arrivals::Even { per_s, lasting };
    let streams =
        [("otp", 80.0), ("marketing", 120.0)].map(|(class, per_s)| Stream::new(class, even(per_s)));
    send_beside_control(stack, &streams).await
}

/// Where the provider's clock stands.
pub async fn clock(stack: &Stack) -> Duration {
    Duration::from_secs_f64(stack.sim.report().await.elapsed_s)
}

pub fn between(arrivals: &[Duration], from: Duration, to: Duration) -> usize {
    arrivals.iter().filter(|at| (from..to).contains(*at)).count()
}

/// Traffic while `leave` takes the decider away for `away` and `come_back` brings it back.
async fn outage<T>(
    stack: &Stack,
    leave: impl FnOnce(),
    come_back: impl FnOnce() -> T,
) -> (Noise, Checked) {
    let before = ms(500);
    let after = RECOVERED_WITHIN + ms(1_100);
    let events = async {
        tokio::time::sleep(before).await;
        leave();
        let left_at = clock(stack).await;
        tokio::time::sleep(AWAY).await;
        let guard = come_back();
        (left_at, clock(stack).await, guard)
    };
    let ((run, noise), (left_at, back_at, _guard)) =
        tokio::join!(load(stack, before + AWAY + after), events);

    let report = stack.sim.report().await;
    stack.assert_filter_is_well().await;
    let arrivals = stack.sim.arrivals().await;
    // What was decided and on its way when the decider left is not of the share.
    let alone = between(&arrivals, left_at + ms(100), back_at);
    let recovered = back_at + RECOVERED_WITHIN;
    let full = between(&arrivals, recovered, recovered + ms(1_000));
    let checked = answered(&run, &noise)
        .and_then(|()| report.within_contract())
        .and_then(|()| goes_on_alone(stack, alone, back_at - left_at))
        .and_then(|()| check(full >= 80, || format!("{full} in 1 s, 2 s after the return")));
    (noise, checked)
}

fn goes_on_alone(stack: &Stack, arrived: usize, during: Duration) -> Checked {
    let gateways = stack.ready.gateways.len() as f64;
    let share = OWN_SHARE_PER_S * gateways * during.as_secs_f64();
    println!("{arrived} arrived without a decider, the share is {share:.1}");
    // Each gateway may send one at once, and one call may have been under way.
    let most = share + 2.0 * gateways;
    assert!(arrived as f64 <= most, "{arrived} of {share:.1}: more than the share");
    check(arrived as f64 >= share * 0.6 - 1.0, || format!("{arrived} of {share:.1} went on"))
}

pub fn up(args: &[&str]) -> Stack {
    let template = template_with_noop().write();
    Stack::up(&[args, &["--gateways", "2", "--envoy", &template]].concat())
}

const AWAY: Duration = ms(2_500);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_decider_hangs_nobody_and_is_used_again_soon_after_its_return() {
    on_a_calm_machine(async || {
        let stack = up(&[]);
        let leave = || stack.signal("decider-0", libc::SIGKILL);
        outage(&stack, leave, || stack.start_again("decider-0")).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_decider_hangs_nobody_and_is_used_again_soon_after_its_return() {
    on_a_calm_machine(async || {
        let stack = up(&[]);
        let leave = || stack.signal("decider-0", libc::SIGSTOP);
        outage(&stack, leave, || stack.signal("decider-0", libc::SIGCONT)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_redis_hangs_nobody_and_is_used_again_soon_after_its_return() {
    on_a_calm_machine(async || {
        let stack = up(&["--deciders", "2", "--redis"]);
        let leave = || stack.signal("redis", libc::SIGKILL);
        outage(&stack, leave, || stack.start_again("redis")).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_hangs_nobody_and_is_used_again_soon_after_its_return() {
    on_a_calm_machine(async || {
        let stack = up(&["--deciders", "2", "--redis"]);
        let leave = || stack.signal("redis", libc::SIGSTOP);
        outage(&stack, leave, || stack.signal("redis", libc::SIGCONT)).await
    })
    .await;
}

/// Each mode takes over under load from a decider that works, which then comes back.
async fn survives(modes: &[Mode]) {
    // The real decider behind is the one of a stack whose gateway has nothing to do.
    let real = Stack::up(&[]);
    let decider = BadDecider::before(&real.ready.deciders[0]).await;
    let stack = up(&["--decider", &decider.address]);
    for mode in modes {
        println!("{mode:?}");
        on_a_calm_machine(async || turns_bad(&stack, &decider, *mode).await).await;
    }
}

async fn turns_bad(stack: &Stack, decider: &BadDecider, mode: Mode) -> (Noise, Checked) {
    // Probes come once a second at least.
    let (probed, good, bad) = (ms(1_300), ms(500), ms(1_300));
    stack.sim.reset().await;
    let events = async {
        decider.set(Mode::Good);
        tokio::time::sleep(probed).await;
        let start = clock(stack).await;
        tokio::time::sleep(good).await;
        let opened = stack.counted("breaker_opened").await;
        decider.set(mode);
        (start, clock(stack).await, opened)
    };
    let ((run, noise), (start, left_at, opened)) =
        tokio::join!(load(stack, probed + good + bad), events);
    let report = stack.sim.report().await;
    stack.assert_filter_is_well().await;
    let opened = stack.counted("breaker_opened").await - opened;
    let arrivals = stack.sim.arrivals().await;
    let with = between(&arrivals, start, start + good);
    let settled = left_at + ms(100);
    let alone = between(&arrivals, settled, left_at + bad);
    let checked = answered(&run, &noise)
        .and_then(|()| report.within_contract())
        .and_then(|()| check(with >= 36, || format!("{with} in {good:?}, before {mode:?}")))
        .and_then(|()| check(opened == 2, || format!("{opened} of 2 gateways saw it")))
        .and_then(|()| goes_on_alone(stack, alone, bad - ms(100)));
    (noise, checked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decider_that_breaks_off_hangs_nobody() {
    survives(&[Mode::ResetInBody, Mode::ResetAtOnce]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decider_that_never_ends_hangs_nobody() {
    survives(&[Mode::StuckInBody, Mode::Silent, Mode::Late]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decider_that_answers_garbage_is_not_believed() {
    survives(&[Mode::GrantWithoutMarker, Mode::OtherJson, Mode::NoHttp]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decider_that_answers_nothing_of_use_is_not_believed() {
    survives(&[Mode::ServerError, Mode::NoJson, Mode::Empty]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_a_decider_cluster_sends_its_share() {
    on_a_calm_machine(async || {
        let mut template = template_with_noop();
        template.clusters().retain(|cluster| cluster["name"] != "weir");
        let stack = Stack::up(&["--gateways", "2", "--envoy", &template.write()]);
        let start = Instant::now();
        let (run, noise) = load(&stack, ms(4_000)).await;
        let report = stack.sim.report().await;
        stack.assert_filter_is_well().await;
        let arrived = report.total.arrivals as usize;
        let checked =
            answered(&run, &noise).and_then(|()| goes_on_alone(&stack, arrived, start.elapsed()));
        (noise, checked)
    })
    .await;
}
