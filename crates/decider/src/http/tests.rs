use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    http::{Method, Request},
};
use http_body_util::BodyExt;
use limits::wire::{Count, DecideReply, N_MAX};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::{
    document,
    fake::{Fake, NEVER},
    store::memory::Memory,
};

/// A body of which nothing comes.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

const DEADLINE: Duration = Duration::from_millis(40);
const POLICY: &str = "
version: 1
gateways: { max: 2 }
decider: { timeout: 50ms }
path_jitter: 20ms
limits:
  - name: sms
    match: { hosts: [sms.example.com] }
    contract: [{ requests: 10, per: 1h }]
    rates: [{ target: 1, per: 1h, burst: 5 }]
    priority: { header: x-priority, default: marketing }
    classes:
      - { name: otp, values: [otp] }
      - { name: marketing, values: [marketing], rates: [{ target: 1, per: 1h, burst: 3 }] }
";

fn app(store: impl FnOnce(Vec<Account>) -> Option<Arc<dyn Store>>) -> Arc<App> {
    let policy = document::parse(POLICY).unwrap().policy;
    let store = store(accounts(&policy));
    Arc::new(App::new(policy, store, DEADLINE))
}

fn memory() -> Arc<App> {
    app(|accounts| Some(Arc::new(Memory::new(accounts))))
}

fn silent() -> Arc<App> {
    app(|_| Some(Arc::new(Fake::new(&[1, 1], &[NEVER; 8]))))
}

/// Status and body; the marker is on every reply.
async fn send(
    app: &Arc<App>,
    method: Method,
    path: &str,
    body: impl Into<Body>,
) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
    let response = router(Arc::clone(app)).oneshot(request).await.unwrap();
    assert_eq!(response.headers()[MARKER], "1", "{path}");
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn post_json(app: &Arc<App>, path: &str, body: &Value) -> (StatusCode, String) {
    send(app, Method::POST, path, body.to_string()).await
}

fn ask(wants: &[(&str, u64)]) -> Value {
    let wants: Vec<Value> =
        wants.iter().map(|(class, n)| json!({ "class": class, "n": n })).collect();
    json!({ "limit": "sms", "policy": "x", "gateway": "g-1", "wants": wants })
}

async fn decided(app: &Arc<App>, wants: &[(&str, u64)]) -> DecideReply {
    let (status, body) = post_json(app, DECIDE_PATH, &ask(wants)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

async fn check_refused(app: &Arc<App>, body: &Value, expected: &str) {
    let (status, body) = post_json(app, DECIDE_PATH, body).await;
    let refusal: Refusal = serde_json::from_str(&body).unwrap();
    assert_eq!((status, refusal.error.as_str()), (StatusCode::BAD_REQUEST, expected));
}

fn count(class: &str, n: u64) -> Count {
    Count { class: class.to_owned(), n }
}

#[tokio::test]
async fn a_reply_says_what_each_class_got_and_waits_for() {
    let reply = decided(&memory(), &[("marketing", 9), ("otp", 1)]).await;
    assert_eq!(reply.granted, [count("marketing", 3), count("otp", 1)]);
    assert!(reply.now_us > 1_700_000_000_000_000, "{reply:?}");
    assert_eq!(reply.wait_us.keys().collect::<Vec<_>>(), ["marketing"]);
    assert_eq!(reply.reason["marketing"], limits::decision::Reason::ClassRate);
    assert_eq!(reply.reason.len(), 1);
    assert_eq!(reply.penalty_us, 0);
}

/// The lean reader and the wire's type are two declarations of one thing.
#[tokio::test]
async fn what_the_wires_type_writes_is_understood() {
    let request = limits::wire::DecideRequest {
        limit: "sms".to_owned(),
        policy: "a \"quoted\" one\n".to_owned(),
        gateway: "g".to_owned(),
        deadline_us: None,
        leaves: false,
        wants: vec![count("otp", 2), count("marketing", 0)],
    };
    let body = serde_json::to_value(&request).unwrap();
    let (status, body) = post_json(&memory(), DECIDE_PATH, &body).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let reply: DecideReply = serde_json::from_str(&body).unwrap();
    assert_eq!(reply.granted, request.wants);
    assert_eq!(serde_json::to_string(&reply).unwrap(), body, "the same text, too");
}

#[tokio::test]
async fn nothing_wanted_tells_the_waits_and_needs_the_store() {
    let app = memory();
    decided(&app, &[("otp", 5)]).await;
    let reply = decided(&app, &[]).await;
    assert_eq!(reply.granted, []);
    assert_eq!(reply.wait_us.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_gives_503_by_its_deadline() {
    let app = silent();
    let start = tokio::time::Instant::now();
    let report = json!({ "limit": "sms", "pause_us": 1, "id": "a" });
    for (path, body) in [(DECIDE_PATH, ask(&[("otp", 1)])), (THROTTLED_PATH, report)] {
        let (status, body) = post_json(&app, path, &body).await;
        let expected = r#"{"error":"the store did not answer within 40ms"}"#;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, expected));
    }
    for path in ["/readyz", "/v1/limits/sms"] {
        let (status, _) = send(&app, Method::GET, path, "").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
    assert!(start.elapsed() <= 4 * (DEADLINE + Duration::from_millis(1)), "{:?}", start.elapsed());
    assert_eq!(send(&app, Method::GET, "/healthz", "").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let body = Body::new(Never);
    let (status, text) = send(&memory(), Method::POST, DECIDE_PATH, body).await;
    let expected = r#"{"error":"body did not come within 5s, the longest that is allowed"}"#;
    assert_eq!((status, text.as_str()), (StatusCode::REQUEST_TIMEOUT, expected));
}

#[tokio::test]
async fn a_stop_is_reported_and_seen() {
    let app = memory();
    let report = json!({ "limit": "sms", "pause_us": 60_000_000, "id": "g-1/1" });
    let (status, body) = post_json(&app, THROTTLED_PATH, &report).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"penalty_us":60000000}"#));
    let reply = decided(&app, &[("otp", 1)]).await;
    assert!((1..=60_000_000).contains(&reply.penalty_us), "{reply:?}");
    assert_eq!(reply.granted, [count("otp", 0)]);
    let (_, body) = send(&app, Method::GET, "/v1/limits/sms", "").await;
    let view: Value = serde_json::from_str(&body).unwrap();
    assert!(view["penalty_us"].as_u64().unwrap() > 0, "{view}");
    assert_eq!(view["classes"][1]["reason"], "penalty");
    assert_eq!(view["rates"][0]["available"], 5);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_what_would() {
    let app = memory();
    let mut other = ask(&[]);
    other["limit"] = json!("mms");
    check_refused(&app, &other, "limit: `mms` is not in the policy; allowed: sms").await;
    check_refused(
        &app,
        &ask(&[("bulk", 1)]),
        "wants[0].class: `bulk` is not in the policy; allowed: otp, marketing",
    )
    .await;
    check_refused(
        &app,
        &ask(&[("otp", 1), ("otp", 1)]),
        "wants[1].class: `otp` is there already; allowed: each class once",
    )
    .await;
    check_refused(
        &app,
        &ask(&[("otp", N_MAX + 1)]),
        "wants[0].n: 100001 is too many; allowed: 0 to 100000",
    )
    .await;
    check_refused(&app, &ask(&[("otp", 1); 65]), "wants: 65 entries; allowed: at most 64").await;
    let (_, text) = send(&app, Method::GET, "/metrics", "").await;
    assert!(text.contains("\nweir_bad_requests_total 5\n"), "{text}");
}

#[tokio::test]
async fn what_is_no_ask_is_refused_with_the_place() {
    let app = memory();
    for (body, expected) in [
        (&b"{"[..], "body: EOF while parsing an object at line 1 column 1"),
        (b"\xff", "body: expected value at line 1 column 1"),
        (b"{\"limit\":\"sms\"}", "body: missing field `policy` at line 1 column 15"),
        (
            b"{\"limit\":1}",
            "body: invalid type: integer `1`, expected a string at line 1 column 10",
        ),
        (
            b"{\"limits\":1}",
            "body: unknown field `limits`, expected one of `limit`, `policy`, `gateway`, `deadline_us`, `leaves`, `wants` at line 1 column 9",
        ),
    ] {
        let (status, body) = send(&app, Method::POST, DECIDE_PATH, body).await;
        let refusal: Refusal = serde_json::from_str(&body).unwrap();
        assert_eq!((status, refusal.error.as_str()), (StatusCode::BAD_REQUEST, expected));
    }
    let negative = r#"{"limit":"sms","policy":"x","gateway":"g","wants":[{"class":"otp","n":-1}]}"#;
    let (status, body) = send(&app, Method::POST, DECIDE_PATH, negative).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
}

#[tokio::test]
async fn a_report_with_a_useless_id_is_refused() {
    let app = memory();
    for id in ["", "a b", "ü", &"x".repeat(129)] {
        let report = json!({ "limit": "sms", "pause_us": 1, "id": id });
        let (status, body) = post_json(&app, THROTTLED_PATH, &report).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{id}: {body}");
        assert!(body.contains("allowed: 1 to 128 printable ASCII characters"), "{body}");
    }
}

#[tokio::test]
async fn other_paths_methods_and_sizes_are_refused_in_json() {
    let app = memory();
    let long = "x".repeat(BODY_MAX + 1);
    for (method, path, body, status, error) in [
        (Method::GET, "/v1/decide", "", 405, "method not allowed on this path; allowed: POST"),
        (Method::POST, "/readyz", "", 405, "method not allowed on this path; allowed: GET"),
        (Method::GET, "/v2", "", 404, NO_PATH),
        (Method::GET, "/v1/limits/%ff", "", 404, NO_NAME),
        (Method::GET, "/v1/limits/x", "", 404, "limit: `x` is not in the policy; allowed: sms"),
        (
            Method::POST,
            "/v1/decide",
            &long,
            413,
            "body is longer than 65536 bytes, the most that is allowed",
        ),
    ] {
        let (got, body) = send(&app, method, path, body.to_owned()).await;
        let refusal: Refusal = serde_json::from_str(&body).unwrap();
        assert_eq!((got.as_u16(), refusal.error.as_str()), (status, error), "{path}");
    }
}

#[tokio::test]
async fn a_gateway_with_another_policy_is_counted_and_answered() {
    let app = memory();
    decided(&app, &[("otp", 1)]).await;
    let mut same = ask(&[("otp", 1)]);
    same["policy"] = json!(app.policy.hash);
    post_json(&app, DECIDE_PATH, &same).await;
    let (_, text) = send(&app, Method::GET, "/metrics", "").await;
    for line in [
        r#"weir_policy_mismatches_total{limit="sms"} 1"#,
        r#"weir_asks_total{limit="sms"} 2"#,
        r#"weir_granted_total{limit="sms",class="otp"} 2"#,
        r#"weir_batches_total{limit="sms"} 2"#,
    ] {
        assert!(text.lines().any(|got| got == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn refusals_are_counted_by_what_held_them_back() {
    let app = memory();
    decided(&app, &[("otp", 1), ("marketing", 5)]).await;
    decided(&app, &[("otp", 3)]).await;
    let (_, text) = send(&app, Method::GET, "/metrics", "").await;
    for line in [
        r#"weir_refused_total{limit="sms",class="marketing",reason="class_rate"} 2"#,
        r#"weir_refused_total{limit="sms",class="otp",reason="rate"} 2"#,
        r#"weir_granted_total{limit="sms",class="marketing"} 3"#,
    ] {
        assert!(text.lines().any(|got| got == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn without_a_store_everything_is_granted() {
    let app = app(|_| None);
    let reply = decided(&app, &[("otp", 99_999)]).await;
    assert_eq!(reply.granted, [count("otp", 99_999)]);
    assert_eq!(send(&app, Method::GET, "/readyz", "").await.0, StatusCode::OK);
}
