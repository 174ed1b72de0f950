//! What a refused caller gets: an honest time, in every form that clients read, and nothing that
//! breaks one.

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lab::Answer;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::harness::{
    Stack,
    call::{HOST, burst, call},
    ms,
    python::python,
};

const OTP: [(&str, &str); 1] = [("x-priority", "otp")];

/// One of our own fields: there once.
fn field<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.header(name).unwrap_or_else(|| panic!("{name} is not there once: {:?}", answer.headers))
}

/// Every field of a throttled answer that is told in `seconds`.
fn assert_fields(answer: &Answer, seconds: u64, should_retry: &str) {
    assert_eq!(answer.status, 429);
    assert_eq!(field(answer, "retry-after"), seconds.to_string());
    let exact: u64 = field(answer, "retry-after-ms").parse().expect("whole milliseconds");
    assert_eq!(exact.max(1).div_ceil(1_000), seconds, "{exact} ms");
    assert_eq!(field(answer, "x-should-retry"), should_retry);
    assert_eq!(field(answer, "x-envoy-ratelimited"), "true");
    assert_eq!(field(answer, "ratelimit-policy"), "\"sms-acct-main\";q=90;w=1");
    assert_eq!(field(answer, "ratelimit"), format!("\"sms-acct-main\";r=0;t={seconds}"));
}

/// The problem document, with `type` and all the rest of RFC 9457.
fn problem(answer: &Answer) -> Value {
    assert_eq!(field(answer, "content-type"), "application/problem+json");
    let problem: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["title"], "Too Many Requests");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["limit"], "sms-acct-main");
    assert_eq!(problem["upstream_attempted"], false);
    assert!(problem["detail"].as_str().is_some_and(|text| !text.is_empty()));
    let untold = problem["retry_after_ms"].as_u64().is_some_and(|ms| ms > 60_000);
    let date = problem["retry_at"].as_str().is_some_and(|date| date.ends_with(" GMT"));
    assert_eq!(date, untold, "the instant of a stop that no header field can tell: {problem}");
    problem
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_everything_a_client_may_read() {
    let stack = Stack::up(&[]);
    for (class, reason) in [("otp", "rate"), ("marketing", "class_rate")] {
        let (answers, _) = burst(stack.gateway(0), class, 20).await;
        let refused = answers.iter().find(|answer| !answer.passed()).expect("a refusal");
        assert_fields(refused, 1, "true");
        let problem = problem(refused);
        assert_eq!((&problem["class"], &problem["reason"]), (&class.into(), &reason.into()));
        let exact: u64 = field(refused, "retry-after-ms").parse().expect("whole milliseconds");
        assert_eq!(problem["retry_after_ms"], exact);
        tokio::time::sleep(ms(500)).await; // Idle again for the other class.
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_with_a_body_keeps_its_connection() {
    let stack = Stack::up(&[]);
    stack.sim.force(1, 429, &[("retry-after", "60")]).await;
    assert_eq!(stack.send("otp").await.status, 429);
    for _ in 0..5 {
        let answer = stack.send("otp").await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("connection"), None, "{:?}", answer.headers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_stop_is_told_as_a_minute_and_not_to_retry() {
    let stack = Stack::up(&[]);
    stack.sim.force(1, 429, &[("retry-after", "3000")]).await;
    assert_fields(&stack.send("otp").await, 60, "false");
    let refused = stack.send("otp").await;
    assert_fields(&refused, 60, "false");
    let problem = problem(&refused);
    assert_eq!(problem["reason"], "penalty");
    let exact = problem["retry_after_ms"].as_u64().expect("milliseconds");
    assert!((2_990_000..=3_000_000).contains(&exact), "the true time: {exact}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_providers_own_throttle_fields_are_never_passed_on() {
    let stack = Stack::up(&[]);
    let theirs = [
        ("retry-after", "1.5"),
        ("retry-after-ms", "-1"),
        ("x-should-retry", "true, at once"),
        ("ratelimit", "limit=5"),
        ("ratelimit-reset", "12"),
        ("x-ratelimit-remaining", "0"),
        ("x-rate-limit-reset", "1760000000"),
        ("x-request-id", "theirs"),
    ];
    stack.sim.force(1, 429, &theirs).await;
    let answer = stack.send("otp").await;
    // 1.5 s, rounded up.
    assert_fields(&answer, 2, "true");
    for gone in ["ratelimit-reset", "x-ratelimit-remaining", "x-rate-limit-reset"] {
        assert!(!answer.headers.contains_key(gone), "{gone}");
    }
    assert_eq!(field(&answer, "x-request-id"), "theirs", "the rest is the provider's");
}

const REQUESTS_SCRIPT: &str = r#"
import json, sys, time
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

retry = Retry(total=5, status_forcelist=[429], allowed_methods=None,
              respect_retry_after_header=True, backoff_factor=0)
session = requests.Session()
session.trust_env = False
session.mount("http://", HTTPAdapter(max_retries=retry))
start = time.monotonic()
answer = session.post("http://%s/v1/messages" % sys.argv[1], json={"class": "otp"},
                      headers={"host": "sms.example.com", "x-priority": "otp"})
print(json.dumps({
    "status": answer.status_code,
    "took": time.monotonic() - start,
    "before": [one.status for one in answer.raw.retries.history],
}))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn python_requests_waits_as_told_and_gets_through() {
    let stack = Stack::up(&[]);
    stack.sim.force(1, 429, &[("retry-after", "2")]).await;
    assert_eq!(stack.send("otp").await.status, 429);
    let run = python(REQUESTS_SCRIPT, &[stack.gateway(0)]).await;
    assert_eq!(run["status"], 200, "{run}");
    assert_eq!(run["before"], serde_json::json!([429]), "told once, and right: {run}");
    assert!(run["took"].as_f64().is_some_and(|s| (1.0..4.0).contains(&s)), "{run}");
    assert_eq!(stack.sim.report().await.total.arrivals, 2, "the refusal cost the provider nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_requests_also_waits_for_the_providers_429() {
    let stack = Stack::up(&[]);
    // In a form that urllib3 raises on.
    stack.sim.force(1, 429, &[("retry-after", "1s")]).await;
    let run = python(REQUESTS_SCRIPT, &[stack.gateway(0)]).await;
    assert_eq!((&run["status"], &run["before"]), (&200.into(), &serde_json::json!([429])));
    assert_eq!(stack.sim.report().await.total.arrivals, 2);
    assert_eq!(stack.counted("otp.granted").await, 2, "each attempt was counted");
}

/// A gRPC call over HTTP/2 without TLS: its gRPC status and HTTP status.
async fn grpc_call(gateway: &str) -> (Option<String>, u16) {
    let stream = TcpStream::connect(gateway).await.expect("the gateway listens");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::post(format!("http://{HOST}/sms.Messages/Send"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-priority", "otp")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .expect("a request");
    let answer = sender.send_request(request).await.expect("the gateway answers");
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.expect("a body").trailers().cloned();
    let status = head.headers.get("grpc-status").cloned();
    let status = status.or_else(|| trailers?.get("grpc-status").cloned());
    (status.map(|status| status.to_str().expect("text").to_owned()), head.status.as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_caller_is_told_resource_exhausted() {
    let stack = Stack::up(&[]);
    let exhausted = (Some("8".to_owned()), 200);
    // More at once than the burst: some of the refused have waited for the decider's answer.
    let gateway = stack.gateway(0).to_owned();
    let calls = (0..12).map(|_| {
        let gateway = gateway.clone();
        tokio::spawn(async move { grpc_call(&gateway).await })
    });
    let mut refused = 0;
    for call in calls.collect::<Vec<_>>() {
        let answer = call.await.expect("an answer");
        // The provider does not speak gRPC: who passes gets its JSON.
        if answer.0.is_some() {
            assert_eq!(answer, exhausted);
            refused += 1;
        }
    }
    assert!(refused >= 3, "only {refused} of 12 were refused");
    // And from memory.
    stack.sim.force(1, 429, &[]).await;
    let stopped = async || call(&stack.client, &gateway, &OTP).await.reason();
    while stopped().await.as_deref() != Some("penalty") {}
    assert_eq!(grpc_call(&gateway).await, exhausted);
    stack.assert_filter_is_well().await;
}
