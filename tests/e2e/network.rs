//! The network between gateways and decider fails in every way that networks do. No request hangs: each
//! is answered within the policy's time-out, the contract holds, and soon after the network's return all
//! is as before.

use crate::decider_away::{RECOVERED_WITHIN, between, clock, load, up};
use crate::harness::{
    Stack, ms,
    network::{Fault, Network},
    noise::{Checked, Noise, answered, check, on_a_calm_machine},
};

/// What a fault is worth while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Answers are later, and that is all.
    OnlyLater,
    /// Both gateways notice, and go on alone.
    Outage,
    /// Dead connections are noticed and replaced.
    Replaced,
}

/// Of the target of 90/s.
const NEARLY_ALL: usize = 76;

/// Each of the faults strikes under load, and ends.
async fn nobody_hangs(faults: &[(Fault, Outcome)]) {
    // The real decider behind is the one of a stack whose gateway has nothing to do.
    let real = Stack::up(&[]);
    let network = Network::to(&real.ready.deciders[0]).await;
    let stack = up(&["--decider", &network.address]);
    for (fault, expected) in faults {
        println!("{fault:?}");
        on_a_calm_machine(async || strike(&stack, &network, *fault, *expected).await).await;
    }
}

async fn strike(
    stack: &Stack,
    network: &Network,
    fault: Fault,
    expected: Outcome,
) -> (Noise, Checked) {
    let (second, before, lasting) = (ms(1_000), ms(700), ms(2_600));
    // An attempt before this one may have left the breaker open.
    tokio::time::sleep(ms(1_300)).await;
    stack.sim.reset().await;
    let events = async {
        tokio::time::sleep(before).await;
        let opened = stack.counted("breaker_opened").await;
        network.set(fault);
        tokio::time::sleep(lasting - second).await;
        let granted = granted(stack).await;
        tokio::time::sleep(second).await;
        let (during, end) = (self::granted(stack).await - granted, clock(stack).await);
        network.set(Fault::None);
        (opened, during, end)
    };
    let all = before + lasting + RECOVERED_WITHIN + second + ms(300);
    let ((run, noise), (opened, during, end)) = tokio::join!(load(stack, all), events);
    let report = stack.sim.report().await;
    stack.assert_filter_is_well().await;
    let opened = stack.counted("breaker_opened").await - opened;
    let arrivals = stack.sim.arrivals().await;
    let after = end + RECOVERED_WITHIN;
    let back = between(&arrivals, after, after + second);
    println!(
        "breaker opened {opened} times, {during} granted in the fault's last second, {back} after"
    );
    let checked = answered(&run, &noise)
        .and_then(|()| report.within_contract())
        .and_then(|()| check(back >= NEARLY_ALL, || format!("{back} in 1 s after its end")));
    let as_expected = match expected {
        Outcome::OnlyLater => opened == 0 && during >= NEARLY_ALL as u64,
        Outcome::Outage => opened >= 2 && during == 0,
        Outcome::Replaced => opened >= 1 && during >= NEARLY_ALL as u64,
    };
    let wrong = || format!("{expected:?} expected, but opened {opened} times and {during} granted");
    (noise, checked.and_then(|()| check(as_expected, wrong)))
}

/// By the decider, and heard of.
async fn granted(stack: &Stack) -> u64 {
    stack.counted("otp.granted").await + stack.counted("marketing.granted").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_within_the_time_out_costs_time_and_nothing_else() {
    nobody_hangs(&[(Fault::Delay(ms(15)), Outcome::OnlyLater)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_too_slow_hangs_nobody() {
    let (late, trickle) = (Fault::Delay(ms(120)), Fault::SlowBody);
    nobody_hangs(&[(late, Outcome::Outage), (trickle, Outcome::Outage)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_everything_hangs_nobody() {
    nobody_hangs(&[(Fault::BlackHole, Outcome::Outage)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_resets_or_garbles_hangs_nobody() {
    let (reset, garbage) = (Fault::Reset, Fault::Garbage);
    nobody_hangs(&[(reset, Outcome::Outage), (garbage, Outcome::Outage)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_dead_on_one_side_are_replaced() {
    nobody_hangs(&[(Fault::HalfOpen, Outcome::Replaced)]).await;
}
