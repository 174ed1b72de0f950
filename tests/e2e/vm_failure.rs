//! A filter's virtual machine dies, which Weir's never may: what callers would see of it, in figures.
//! The one that dies here is another filter's in front of it, which does so when it is told to.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Stack, call, eventually, files::Template, ms};

/// In the sample it is a minute, above every wait.
const STREAM_IDLE_TIMEOUT: Duration = ms(3_000);
/// Envoy's timers count in milliseconds.
const EARLY: Duration = ms(2_990);
/// Envoy looks at its timers at once; a busy machine does not.
const LATE: Duration = ms(1_000);
/// Envoy's back-off before a new virtual machine is at most 1.2 s.
const NEW_VM_WITHIN: Duration = ms(2_500);

fn gateway_that_can_be_killed() -> Stack {
    let mut template = Template::sample();
    template.hcm()["stream_idle_timeout"] = json!("3s");
    let mut filter = template.http_filters()[0].clone();
    filter["name"] = json!("baseline");
    let config = &mut filter["typed_config"]["config"];
    assert_eq!(config["failure_policy"], "FAIL_RELOAD", "what the sample has is what is tested");
    config["name"] = json!("baseline");
    config["root_id"] = json!("baseline");
    config["vm_config"]["vm_id"] = json!("baseline");
    config["vm_config"]["code"]["local"]["filename"] = json!("target/wasm/baseline.wasm");
    config["configuration"]["value"] = json!("obey");
    template.http_filters().insert(0, filter);
    Stack::up(&["--workers", "1", "--envoy", &template.write()])
}

async fn told(stack: &Stack, order: &str) -> call::Answer {
    let headers = [("x-priority", "otp"), ("x-baseline", order)];
    call(&stack.client, stack.gateway(0), &headers).await
}

/// Kills it, and says after how long requests pass again. Until then each is answered 503 at once.
async fn recovers(stack: &Stack) -> Duration {
    assert_eq!(told(stack, "trap").await.status, 503);
    let start = Instant::now();
    eventually(NEW_VM_WITHIN, "a new virtual machine", async || {
        let asked = Instant::now();
        let status = stack.send("otp").await.status;
        assert!(asked.elapsed() < LATE, "a request waited {:?}", asked.elapsed());
        assert!([200, 503].contains(&status), "{status}");
        (status == 200).then_some(())
    })
    .await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_is_503_for_a_moment_and_nothing_reaches_the_provider_uncounted() {
    let stack = gateway_that_can_be_killed();
    assert_eq!(stack.send("otp").await.status, 200);
    for number in 1..=3 {
        println!("a new virtual machine after {:?}", recovers(&stack).await);
        let arrivals = stack.sim.report().await.total.arrivals;
        assert_eq!(arrivals, 1 + number, "only what was answered 200");
    }
    assert_eq!(stack.counted("otp.granted").await, 4, "Weir's own machine went on");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_paused_when_it_trapped_is_ended_by_stream_idle_timeout() {
    let stack = gateway_that_can_be_killed();
    let start = Instant::now();
    let paused = async {
        let answer = told(&stack, "pause").await;
        (answer.status, start.elapsed())
    };
    let trap = async {
        tokio::time::sleep(ms(500)).await;
        recovers(&stack).await;
        stack.sim.report().await.total.arrivals
    };
    let ((status, after), passed) = tokio::join!(paused, trap);
    println!("the paused request: {status} after {after:?}");
    assert!(EARLY <= after && after < STREAM_IDLE_TIMEOUT + LATE, "after {after:?}");
    // Envoy's own answer to it is made a 503 by the filter that has no virtual machine any more.
    assert_eq!(status, 503);
    assert_eq!(stack.sim.report().await.total.arrivals, passed, "the paused one never went");
}
