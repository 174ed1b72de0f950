//! One 429 of the provider stops everybody, for as long as it asks, and nothing else does.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use lab::{Arrivals, Stream, Summary, Target};

use crate::harness::{
    Stack,
    call::{HOST, call, call_at},
    eventually,
    files::Template,
    ms,
};

const OTP: [(&str, &str); 1] = [("x-priority", "otp")];
/// A report is on its way when the caller has its answer; this is for a busy machine.
const ROUND_TRIP: Duration = ms(200);

fn two_gateways() -> Stack {
    Stack::up(&["--gateways", "2", "--deciders", "2", "--redis", "--workers", "2"])
}

async fn everyone_passes_within(stack: &Stack, limit: Duration) {
    for gateway in &stack.ready.gateways {
        let passed = async || call(&stack.client, gateway, &OTP).await.passed().then_some(());
        eventually(limit, "the gateway goes on", passed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_429_seen_by_one_gateway_stops_the_other_at_its_next_request() {
    let stack = two_gateways();
    stack.sim.force(1, 429, &[("retry-after", "1")]).await;
    let first = stack.send("otp").await;
    assert_eq!((first.status, first.header("retry-after")), (429, Some("1")));
    eventually(ROUND_TRIP, "the stop is known to the other decider", async || {
        (stack.penalty(1).await > Duration::ZERO).then_some(())
    })
    .await;
    let next = call(&stack.client, stack.gateway(1), &OTP).await;
    assert_eq!((next.status, next.reason().as_deref()), (429, Some("penalty")));

    let lasting = ms(700);
    let streams = ["otp", "marketing"]
        .map(|class| Stream::new(class, Arrivals::Even { per_s: 100.0, lasting }));
    let run = lab::send(&Target::new(&stack.ready.gateways), &streams).await;
    let summary = Summary::of(run.sent.iter());
    assert_eq!(summary.refused, summary.sent, "someone passed during the stop");
    assert_eq!(summary.reasons.keys().collect::<Vec<_>>(), ["penalty"]);
    assert_eq!(stack.sim.report().await.total.arrivals, 1, "the provider was left alone");

    everyone_passes_within(&stack, ms(1_500)).await;
    let arrivals = stack.sim.arrivals().await;
    assert!(arrivals[1] - arrivals[0] >= ms(1_000), "{arrivals:?}");
    assert_eq!(stack.counted("throttled").await, 1);
    stack.assert_filter_is_well().await;
}

/// Two requests are at the provider when it begins to refuse: the first answer asks for
/// `first_s`, the later one for `then_s`. Returns how long after the first arrival the next
/// request came through.
async fn stopped_for(stack: &Stack, first_s: &str, then_s: &str) -> Duration {
    let mut answers = JoinSet::new();
    for (number, wait, latency) in [(0, first_s, "150ms"), (1, then_s, "500ms")] {
        stack.sim.set(json!({ "latency": latency })).await;
        stack.sim.force(1, 429, &[("retry-after", wait)]).await;
        let (client, gateway) = (stack.client.clone(), stack.gateway(number).to_owned());
        answers.spawn(async move { call(&client, &gateway, &OTP).await });
        eventually(ms(1_000), "the request has arrived", async || {
            (stack.sim.report().await.total.arrivals > number as u64).then_some(())
        })
        .await;
    }
    for answer in answers.join_all().await {
        assert_eq!(answer.status, 429);
    }
    stack.sim.set(json!({ "latency": "0s" })).await;
    everyone_passes_within(stack, ms(5_000)).await;
    let arrivals = stack.sim.arrivals().await;
    arrivals[2] - arrivals[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_stop_never_shortens_a_longer_one() {
    let stopped = stopped_for(&two_gateways(), "3", "1").await;
    // Its own latency, and what it asked for; asked again in time to notice the end.
    assert!(stopped >= ms(3_150), "{stopped:?}");
    assert!(stopped < ms(3_650), "{stopped:?}: longer than anyone asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_stop_lengthens_a_shorter_one() {
    let stopped = stopped_for(&two_gateways(), "1", "3").await;
    assert!(stopped >= ms(3_500), "{stopped:?}");
}

/// A 429 that another filter or a route gave, after the decider's grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_429_of_envoy_itself_stops_nobody() {
    let mut template = Template::sample();
    let at = template.http_filters().len() - 1;
    template.http_filters().insert(at, local_rate_limit());
    let routes = template.routes()["virtual_hosts"][0]["routes"].as_array_mut().expect("routes");
    let direct = json!({ "match": { "path": "/direct" }, "direct_response": { "status": 429 } });
    let limited = json!({
        "match": { "path": "/limited" },
        "route": { "cluster": "provider" },
        "typed_per_filter_config": { "envoy.filters.http.local_ratelimit": one_passes() },
    });
    routes.splice(0..0, [direct, limited]);
    let stack = Stack::up(&["--envoy", &template.write()]);
    let token = call_at(&stack.client, stack.gateway(0), "/limited", &OTP).await;
    assert_eq!(token.status, 200, "the bucket's only token");
    for path in ["/direct", "/limited"] {
        let answer = call_at(&stack.client, stack.gateway(0), path, &OTP).await;
        assert_eq!(answer.status, 429, "{path}");
        assert_eq!(answer.header("retry-after"), None, "{path}: not ours to rewrite");
        let next = stack.send("otp").await;
        assert_eq!(next.status, 200, "{path} was taken for the provider's: {:?}", next.reason());
    }
    assert_eq!(stack.counted("throttled").await, 0);
    assert_eq!(stack.sim.report().await.total.arrivals, 3);
}

fn local_rate_limit() -> serde_json::Value {
    json!({ "name": "envoy.filters.http.local_ratelimit", "typed_config": {
        "@type": LOCAL_RATE_LIMIT,
        "stat_prefix": "other_filter",
    } })
}

/// One request, and then none for an hour.
fn one_passes() -> serde_json::Value {
    let always = json!({ "default_value": { "numerator": 100, "denominator": "HUNDRED" } });
    json!({
        "@type": LOCAL_RATE_LIMIT,
        "stat_prefix": "other_filter",
        "token_bucket": { "max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "3600s" },
        "filter_enabled": always,
        "filter_enforced": always,
    })
}

const LOCAL_RATE_LIMIT: &str =
    "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

/// Our own 429s pass through the filter's response path as well.
#[tokio::test(flavor = "multi_thread")]
async fn our_own_429_stops_nobody() {
    let stack = Stack::up(&[]);
    let burst = Stream::new("otp", Arrivals::AtOnce { count: 60 });
    let run = lab::send(&Target::new(&stack.ready.gateways), &[burst]).await;
    let summary = Summary::of(run.sent.iter());
    assert!(summary.refused > 20, "{} refused", summary.refused);
    assert!(!summary.reasons.contains_key("penalty"), "{:?}", summary.reasons);
    assert_eq!(stack.counted("throttled").await, 0);
    everyone_passes_within(&stack, ms(200)).await;
}

/// Sends, and hangs up at the first byte of the answer.
async fn hang_up_on_the_answer(gateway: &str) {
    let mut stream = TcpStream::connect(gateway).await.expect("the gateway listens");
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {HOST}\r\nx-priority: otp\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).await.expect("the gateway reads");
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 429");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_reported_although_the_caller_has_gone() {
    let stack = two_gateways();
    stack.sim.force(1, 429, &[("retry-after", "2")]).await;
    hang_up_on_the_answer(stack.gateway(0)).await;
    eventually(ROUND_TRIP, "the stop is known", async || {
        (stack.penalty(1).await > Duration::ZERO).then_some(())
    })
    .await;
    let next = call(&stack.client, stack.gateway(1), &OTP).await;
    assert_eq!(next.reason().as_deref(), Some("penalty"));
    assert_eq!(stack.sim.report().await.total.arrivals, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_reported_when_a_stopped_decider_comes_back() {
    let stack = Stack::up(&[]);
    stack.sim.set(json!({ "latency": "300ms" })).await;
    stack.sim.force(1, 429, &[("retry-after", "5")]).await;
    let gateway = stack.gateway(0).to_owned();
    let caller = tokio::spawn(async move { hang_up_on_the_answer(&gateway).await });
    eventually(ms(1_000), "the request has arrived", async || {
        (stack.sim.report().await.total.arrivals == 1).then_some(())
    })
    .await;
    // Granted, and at the provider: now nobody hears the report that will come.
    stack.signal("decider-0", libc::SIGSTOP);
    caller.await.expect("the caller got its 429");
    let start = Instant::now();
    // Time for reports to fail, on the time-out of 50 ms; meanwhile its own gateway knows by itself.
    while start.elapsed() < ms(300) {
        assert_eq!(stack.send("otp").await.reason().as_deref(), Some("penalty"));
    }
    stack.signal("decider-0", libc::SIGCONT);
    eventually(ms(3_000), "the stop is known", async || {
        (stack.penalty(0).await > ms(500)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_without_a_readable_time_lasts_the_policys_default() {
    let stack = Stack::up(&[]);
    stack.sim.force(1, 429, &[("retry-after", "soon")]).await;
    assert_eq!(stack.send("otp").await.status, 429);
    everyone_passes_within(&stack, ms(2_000)).await;
    let arrivals = stack.sim.arrivals().await;
    assert!(arrivals[1] - arrivals[0] >= ms(1_000), "{arrivals:?}");
    assert_eq!(stack.counted("retry_after_invalid").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_outlives_the_stores_memory() {
    let stack = two_gateways();
    stack.sim.force(1, 429, &[("retry-after", "6")]).await;
    let stopped = Instant::now();
    assert_eq!(stack.send("otp").await.status, 429);
    eventually(ROUND_TRIP, "the stop is known to the other decider", async || {
        (stack.penalty(1).await > Duration::ZERO).then_some(())
    })
    .await;
    // The other gateway learns of it by asking.
    assert_eq!(call(&stack.client, stack.gateway(1), &OTP).await.status, 429);

    stack.signal("redis", libc::SIGKILL);
    tokio::time::sleep(ms(200)).await;
    let _redis = stack.start_again("redis");
    while stopped.elapsed() < ms(5_800) {
        for gateway in &stack.ready.gateways {
            call(&stack.client, gateway, &OTP).await;
        }
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(stack.sim.report().await.total.arrivals, 1, "the provider was left alone");
    assert!(stack.penalty(0).await > Duration::ZERO, "the new store has been told");
    everyone_passes_within(&stack, ms(1_500)).await;
    stack.assert_filter_is_well().await;
}
