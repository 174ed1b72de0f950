//! The provider over real HTTP, as senders and tests use it.

mod support;

use axum::body::Bytes;
use axum::http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use provider_sim::config::Settings;
use serde_json::json;
use std::time::{Duration, Instant};

use support::{Sim, TestBody, TestResult, request};

/// A window no test outlives, so that no verdict depends on how fast the machine is.
fn slow(limit: u32) -> Settings {
    Settings { limit, window: Duration::from_secs(3600), ..Settings::default() }
}

/// A body, and the hand that lets it go piece by piece.
fn held_back() -> (Sender<Bytes, std::io::Error>, TestBody) {
    let (sender, body) = Channel::new(1);
    (sender, body.map_err(|error| error.into()).boxed())
}

#[tokio::test]
async fn calls_above_the_limit_get_429_and_all_are_counted() -> TestResult {
    let sim = Sim::start(slow(2)).await?;
    let mut client = sim.connect().await?;
    for id in 1..=2 {
        let reply = client.post("/v1/messages", r#"{"class":"otp"}"#).await?;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.json()?, json!({"accepted": true, "id": id}));
    }
    let reply = client.post("/v1/messages", "to=1&kind=marketing").await?;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.header("retry-after"), Some("1"));

    let report = client.report().await?;
    assert_eq!(report["arrivals"], 3);
    assert_eq!(report["accepted"], 2);
    assert_eq!(report["refused"], 1);
    assert_eq!(report["suspended"], false);
    assert_eq!(report["suspended_after_s"], json!(null));
    assert_eq!(report["body_bytes"], 2 * 15 + 19);
    assert_eq!(report["by_class"]["otp"]["accepted"], 2);
    assert_eq!(report["by_class"]["otp"]["refused"], 0);
    assert_eq!(report["by_class"]["marketing"]["refused"], 1);

    let arrivals = client.get("/_sim/arrivals").await?;
    assert_eq!(arrivals.header("x-sim-truncated"), Some("false"));
    let arrivals = arrivals.json()?;
    assert_eq!(arrivals[2]["status"], 429);
    assert_eq!(arrivals[2]["class"], "marketing");
    assert_eq!(arrivals[0]["path"], "/v1/messages");
    assert_eq!(arrivals[0]["method"], "POST");
    assert!(arrivals[0]["at_us"].as_u64() <= arrivals[1]["at_us"].as_u64());
    Ok(())
}

#[tokio::test]
async fn the_reply_waits_for_the_latency() -> TestResult {
    let latency = Duration::from_millis(60);
    let sim = Sim::start(Settings { latency, ..slow(1) }).await?;
    let mut client = sim.connect().await?;
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let sent = Instant::now();
        assert_eq!(client.post("/", "").await?.status, status);
        assert!(sent.elapsed() >= latency, "after {:?}", sent.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn the_fullest_second_is_that_of_the_arrivals_listed() -> TestResult {
    let sim = Sim::start(Settings::default()).await?;
    let mut client = sim.connect().await?;
    for _ in 0..150 {
        client.post("/", "otp").await?;
    }
    let report = client.report().await?;
    let arrivals = client.get("/_sim/arrivals").await?.json()?;
    let arrivals = arrivals.as_array().cloned().unwrap_or_default();
    let fullest = |status: Option<u64>| {
        let chosen = arrivals
            .iter()
            .filter(|arrival| status.is_none() || arrival["status"].as_u64() == status);
        let at_us: Vec<u64> = chosen.filter_map(|arrival| arrival["at_us"].as_u64()).collect();
        let held = |start: &u64| {
            at_us.iter().filter(|at| (0..1_000_000).contains(&at.wrapping_sub(*start))).count()
        };
        at_us.iter().map(held).max()
    };
    assert_eq!(report["max_in_any_1s"].as_u64(), fullest(None).map(|n| n as u64));
    assert_eq!(report["by_class"]["otp"]["max_in_any_1s"], report["max_in_any_1s"]);
    assert!(fullest(Some(200)) <= Some(100), "more than the limit was accepted");
    Ok(())
}

#[tokio::test]
async fn an_arrival_and_its_bytes_are_visible_before_the_body_ends() -> TestResult {
    let sim = Sim::start(slow(10)).await?;
    let mut watcher = sim.connect().await?;
    assert_eq!(watcher.report().await?["arrivals"], 0);

    let mut sender = sim.connect().await?;
    let (mut body, held) = held_back();
    let reply =
        tokio::spawn(
            async move { sender.send(request(Method::POST, "/v1/messages", held)?).await },
        );
    let report = watcher.report_when(|report| report["arrivals"] == 1).await?;
    assert_eq!(report["body_bytes"], 0);
    assert_eq!(report["by_class"]["unknown"]["accepted"], 1);

    body.send_data("{\"class\":".into()).await?;
    watcher.report_when(|report| report["body_bytes"] == 9).await?;
    assert_eq!(watcher.get("/_sim/requests").await?.json()?[0]["complete"], false);

    body.send_data("\"otp\"}".into()).await?;
    drop(body);
    assert_eq!(reply.await??.status, StatusCode::OK);
    let report = watcher.report().await?;
    assert_eq!(report["by_class"]["otp"]["arrivals"], 1);
    assert_eq!(report["by_class"]["unknown"], json!(null));
    Ok(())
}

#[tokio::test]
async fn a_sender_that_goes_away_in_mid_body_stays_counted_as_unknown() -> TestResult {
    let sim = Sim::start(slow(10)).await?;
    let mut watcher = sim.connect().await?;
    let mut sender = sim.connect().await?;
    let (mut body, held) = held_back();
    let reply = tokio::spawn(async move { sender.send(request(Method::POST, "/a", held)?).await });
    body.send_data("{\"class\":\"otp\"".into()).await?;
    watcher.report_when(|report| report["body_bytes"] == 14).await?;
    reply.abort();
    body.abort(std::io::Error::other("sender is gone"));
    watcher.post("/b", "otp").await?;
    let report = watcher.report_when(|report| report["by_class"]["otp"]["arrivals"] == 1).await?;
    assert_eq!(report["by_class"]["unknown"]["arrivals"], 1);
    Ok(())
}

#[tokio::test]
async fn a_body_of_64_mb_is_accepted_and_counted() -> TestResult {
    let sim = Sim::start(slow(10)).await?;
    let mut sender = sim.connect().await?;
    let (mut body, held) = held_back();
    let reply =
        tokio::spawn(async move { sender.send(request(Method::PUT, "/upload", held)?).await });
    let megabyte = bytes_of(1_000_000);
    for _ in 0..64 {
        body.send_data(megabyte.clone()).await?;
    }
    body.send_data("marketing".into()).await?;
    drop(body);
    assert_eq!(reply.await??.status, StatusCode::OK);
    let report = sim.connect().await?.report().await?;
    assert_eq!(report["body_bytes"], 64_000_009);
    assert_eq!(report["by_class"]["marketing"]["arrivals"], 1);
    Ok(())
}

fn bytes_of(n: usize) -> Bytes {
    vec![b'x'; n].into()
}

#[tokio::test]
async fn forced_replies_are_sent_as_written_and_then_end() -> TestResult {
    let sim = Sim::start(slow(10)).await?;
    let mut client = sim.connect().await?;
    let force = json!({"limit": 5, "force": {"times": 2, "status": 429, "body": "busy", "headers":
        {"retry-after": ["1", "1m0s"], "date": "Thu, 01 Jan 1970 00:00:00 GMT"}}});
    let model = client.post("/_sim/model", &force.to_string()).await?.json()?;
    assert_eq!((&model["limit"], &model["force"]["times"]), (&json!(5), &json!(2)));
    for _ in 0..2 {
        let reply = client.post("/v1/messages", "otp").await?;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        let values: Vec<_> = reply.headers.get_all("retry-after").iter().collect();
        assert_eq!(values, ["1", "1m0s"]);
        assert_eq!(reply.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert_eq!(reply.body, "busy");
    }
    assert_eq!(client.post("/v1/messages", "otp").await?.status, StatusCode::OK);
    let report = client.report().await?;
    assert_eq!((&report["refused"], &report["accepted"]), (&json!(2), &json!(1)));
    Ok(())
}

#[tokio::test]
async fn too_many_refusals_suspend_and_say_how_long() -> TestResult {
    let settings = Settings { suspend_after: Some(3), ..slow(0) };
    let sim = Sim::start(settings).await?;
    let mut client = sim.connect().await?;
    for _ in 0..4 {
        let reply = client.post("/", "").await?;
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    // A suspended account is closed whatever the quota says.
    client.post("/_sim/model", r#"{"limit":100}"#).await?;
    let reply = client.post("/", "").await?;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    let left: u64 = reply.header("retry-after").unwrap_or_default().parse()?;
    assert!((3000..=3600).contains(&left), "{left} s left of 60 min");
    let report = client.report().await?;
    assert_eq!((&report["suspended"], &report["refused"]), (&json!(true), &json!(5)));
    assert!(report["suspended_after_s"].as_f64() <= report["elapsed_s"].as_f64());

    client.post("/_sim/reset", "").await?;
    assert_eq!(client.post("/", "").await?.status, StatusCode::OK);
    let report = client.report().await?;
    assert_eq!((&report["arrivals"], &report["suspended"]), (&json!(1), &json!(false)));
    assert_eq!(client.get("/_sim/model").await?.json()?["suspend_after"], 3);
    Ok(())
}

#[tokio::test]
async fn the_status_and_text_of_a_refusal_can_be_set() -> TestResult {
    let sim = Sim::start(slow(0)).await?;
    let mut client = sim.connect().await?;
    client.post("/_sim/model", r#"{"status":503,"retry_after":"nan"}"#).await?;
    let reply = client.post("/", "").await?;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.header("retry-after"), Some("nan"));
    client.post("/_sim/model", r#"{"retry_after":null}"#).await?;
    assert_eq!(client.post("/", "").await?.header("retry-after"), None);
    assert_eq!(client.report().await?["refused"], 2);
    Ok(())
}

#[tokio::test]
async fn a_bad_change_is_refused_by_field_and_changes_nothing() -> TestResult {
    let sim = Sim::start(slow(7)).await?;
    let mut client = sim.connect().await?;
    let reply = client.post("/_sim/model", r#"{"limit":1,"windw":"2s"}"#).await?;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let error = reply.json()?["error"].to_string();
    assert!(error.contains("windw: unknown field"), "{error}");
    assert_eq!(client.get("/_sim/model").await?.json()?["limit"], 7);
    let reply = client.get("/_sim/requests?last=all").await?;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.body.contains("last"), "{}", reply.body);
    Ok(())
}

#[tokio::test]
async fn requests_show_headers_as_they_came() -> TestResult {
    let sim = Sim::start(slow(10)).await?;
    let mut client = sim.connect().await?;
    let long = "v".repeat(60_000);
    let mut call = request(Method::POST, "/v1/messages?to=1", support::full("otp"))?;
    let headers = call.headers_mut();
    headers.append("x-priority", HeaderValue::from_static("otp"));
    headers.append("x-priority", HeaderValue::from_static(""));
    headers.append("x-raw", HeaderValue::from_bytes(b"a\xffb")?);
    headers.append("x-long", HeaderValue::from_str(&long)?);
    assert_eq!(client.send(call).await?.status, StatusCode::OK);
    client.post("/second", "").await?;

    let seen = client.get("/_sim/requests").await?.json()?;
    assert_eq!(seen[0]["path"], "/v1/messages?to=1");
    assert_eq!((&seen[0]["body_bytes"], &seen[0]["class"]), (&json!(3), &json!("otp")));
    let headers = seen[0]["headers"].as_array().cloned().unwrap_or_default();
    for pair in
        [["x-priority", "otp"], ["x-priority", ""], ["x-raw", "a\u{fffd}b"], ["x-long", &long]]
    {
        assert!(headers.contains(&json!(pair)), "{} is missing", pair[0]);
    }
    let last = client.get("/_sim/requests?last=1").await?.json()?;
    assert_eq!(last.as_array().map(Vec::len), Some(1));
    assert_eq!(last[0]["path"], "/second");
    Ok(())
}

#[tokio::test]
async fn any_method_host_and_path_is_a_call_but_a_mistyped_question_is_not() -> TestResult {
    let sim = Sim::start(slow(100)).await?;
    let mut client = sim.connect().await?;
    let calls = [
        (Method::GET, "/"),
        (Method::DELETE, "/v1/messages/7"),
        (Method::OPTIONS, "*"),
        (Method::from_bytes(b"PURGE")?, "/x"),
        (Method::GET, "http://sms.example.com/absolute"),
    ];
    for (method, target) in calls {
        let mut call = request(method, target, support::full(""))?;
        call.headers_mut().insert("host", HeaderValue::from_static("other.example.com"));
        let reply = client.send(call).await?;
        assert_eq!(reply.status, StatusCode::OK, "{target}: {}", reply.body);
    }
    assert_eq!(client.get("/_sim/reprot").await?.status, StatusCode::NOT_FOUND);
    assert_eq!(client.post("/_sim/report", "").await?.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(client.report().await?["arrivals"], 5);
    let arrivals = client.get("/_sim/arrivals").await?.json()?;
    assert_eq!(
        (&arrivals[4]["path"], &arrivals[3]["method"]),
        (&json!("/absolute"), &json!("PURGE"))
    );
    Ok(())
}
