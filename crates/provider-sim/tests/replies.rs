//! Replies, costs and times over real HTTP.

mod support;

use std::time::{Duration, Instant, SystemTime};

use axum::http::{Method, StatusCode};
use provider_sim::config::Settings;
use serde_json::{Value, json};

use support::{Client, Sim, TestResult, full, request};

/// A provider that refuses everything, with `changes` to its settings.
async fn refusing(changes: Value) -> TestResult<(Sim, Client)> {
    let sim = Sim::start(Settings { limit: 0, ..Settings::default() }).await?;
    let mut client = sim.connect().await?;
    let set = client.post("/_sim/model", &changes.to_string()).await?;
    assert_eq!(set.status, StatusCode::OK, "{}", set.body);
    Ok((sim, client))
}

#[tokio::test]
async fn throttling_can_be_a_200_whose_body_says_so() -> TestResult {
    let (_sim, mut client) = refusing(json!({"reply": "vonage"})).await?;
    let reply = client.post("/", "").await?;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.json()?["messages"][0]["status"], "1");
    assert!(reply.body.contains("please wait [1000]"), "{}", reply.body);
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let arrivals = client.get("/_sim/arrivals").await?.json()?;
    assert_eq!((&arrivals[0]["status"], &arrivals[0]["outcome"]), (&json!(200), &json!("refused")));
    assert_eq!(client.report().await?["refused"], 1);
    Ok(())
}

#[tokio::test]
async fn throttling_can_be_a_403_with_fields_of_its_own() -> TestResult {
    let (_sim, mut client) = refusing(json!({"reply": "github"})).await?;
    let reply = client.post("/", "").await?;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
    let reset: u64 = reply.header("x-ratelimit-reset").unwrap_or_default().parse()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    assert!((now..=now + 2).contains(&reset), "{reset}, now {now}");
    Ok(())
}

#[tokio::test]
async fn a_field_that_is_set_replaces_our_own() -> TestResult {
    let (_sim, mut client) = refusing(json!({"refusal_body": "<busy/>",
        "refusal_headers": {"content-type": "text/xml", "retry-after": ["2", "3"]}}))
    .await?;
    let reply = client.post("/", "").await?;
    assert_eq!(reply.body, "<busy/>");
    let values = |field| reply.headers.get_all(field).iter().collect::<Vec<_>>();
    assert_eq!(values("content-type"), ["text/xml"]);
    assert_eq!(values("retry-after"), ["1", "2", "3"]);
    Ok(())
}

#[tokio::test]
async fn a_date_is_so_far_from_the_replys_own_date_as_was_asked_for() -> TestResult {
    for offset_s in [0, 3600, -3600] {
        let (_sim, mut client) = refusing(json!({"retry_after": "http-date",
            "retry_after_in": "30s", "clock_offset_s": offset_s}))
        .await?;
        let reply = client.post("/", "").await?;
        let date = |field| httpdate::parse_http_date(reply.header(field).unwrap_or_default());
        let (until, date) = (date("retry-after")?, date("date")?);
        let ahead = until.duration_since(date)?.as_secs();
        assert!((30..=31).contains(&ahead), "{ahead} s");
        let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let theirs = date.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let off = i64::try_from(theirs)? - i64::try_from(ours)?;
        assert!((offset_s - off).abs() <= 2, "{off} s, wanted {offset_s} s");
    }
    Ok(())
}

#[tokio::test]
async fn several_fields_are_sent_as_several_fields() -> TestResult {
    let (_sim, mut client) = refusing(json!({"retry_after": ["several", "9"]})).await?;
    let reply = client.post("/", "").await?;
    let values: Vec<_> = reply.headers.get_all("retry-after").iter().collect();
    assert_eq!(values, ["0", "1", "soon", "9"]);
    Ok(())
}

#[tokio::test]
async fn a_suspension_can_have_a_status_of_its_own() -> TestResult {
    let (_sim, mut client) = refusing(json!({"reply": "binance", "suspend_after": 0})).await?;
    assert_eq!(client.post("/", "").await?.status, StatusCode::TOO_MANY_REQUESTS);
    let reply = client.post("/", "").await?;
    assert_eq!(reply.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(reply.header("retry-after"), Some("3600"));
    Ok(())
}

#[tokio::test]
async fn a_lost_reply_is_a_closed_connection_and_an_accepted_call() -> TestResult {
    let settings = Settings { lose_every: Some(2), ..Settings::default() };
    let sim = Sim::start(settings).await?;
    let mut client = sim.connect().await?;
    let body = r#"{"class":"otp","id":"m-1"}"#;
    assert_eq!(client.post("/", body).await?.status, StatusCode::OK);
    let lost = client.post("/", body).await;
    assert!(lost.is_err(), "a reply came: {lost:?}");
    assert!(client.post("/", body).await.is_err(), "the connection is still open");
    let report = sim.connect().await?.report().await?;
    assert_eq!((&report["accepted"], &report["replies_lost"]), (&json!(2), &json!(1)));
    assert_eq!((&report["ids_accepted"], &report["accepted_twice"]), (&json!(1), &json!(1)));
    Ok(())
}

#[tokio::test]
async fn a_list_of_recipients_costs_one_unit_each() -> TestResult {
    let settings = Settings { limit: 10, window: Duration::from_secs(3600), ..Settings::default() };
    let sim = Sim::start(settings).await?;
    let mut client = sim.connect().await?;
    client.post("/_sim/model", r#"{"cost":{"json":"recipients"}}"#).await?;
    let body = |n: usize| json!({"recipients": vec!["x"; n]}).to_string();
    assert_eq!(client.post("/", &body(8)).await?.status, StatusCode::OK);
    assert_eq!(client.post("/", &body(3)).await?.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(client.post("/", &body(2)).await?.status, StatusCode::OK);
    client.post("/_sim/model", r#"{"cost":{"header":"x-units"},"limit":15}"#).await?;
    let mut call = request(Method::POST, "/", full(""))?;
    call.headers_mut().insert("x-units", 6.into());
    assert_eq!(client.send(call).await?.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(client.report().await?["accepted_units"], 10);
    Ok(())
}

#[tokio::test]
async fn counted_at_completion_the_verdict_comes_with_the_end_of_the_work() -> TestResult {
    let sim = Sim::start(Settings::default()).await?;
    let mut client = sim.connect().await?;
    let model = json!({"model": "completion", "latency": "50ms", "jitter": "0s",
        "windows": [{"kind": "rolling", "limit": 1, "window": "1h"}]});
    client.post("/_sim/model", &model.to_string()).await?;
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let mut sender = sim.connect().await?;
        let sent = Instant::now();
        let call = tokio::spawn(async move { sender.post("/", "otp").await });
        client.report_when(|report| report["pending"] == 1 || report["in_flight"] == 0).await?;
        assert_eq!(call.await??.status, status);
        assert!(sent.elapsed() >= Duration::from_millis(50));
    }
    let report = client.report().await?;
    assert_eq!((&report["accepted"], &report["refused"]), (&json!(1), &json!(1)));
    assert_eq!((&report["pending"], &report["in_flight"]), (&json!(0), &json!(0)));
    assert_eq!(report["windows"][0]["refused"], 1);
    Ok(())
}

#[tokio::test]
async fn the_timeline_has_what_the_report_counts() -> TestResult {
    let settings = Settings { limit: 3, window: Duration::from_secs(3600), ..Settings::default() };
    let sim = Sim::start(settings).await?;
    let mut client = sim.connect().await?;
    for n in 0..5 {
        client.post("/", if n % 2 == 0 { "otp" } else { "marketing" }).await?;
    }
    let timeline = client.get("/_sim/timeline").await?.json()?;
    assert_eq!((&timeline["bucket_ms"], &timeline["truncated"]), (&json!(100), &json!(false)));
    let sum = |series: &Value| {
        let numbers = series.as_array().cloned().unwrap_or_default();
        numbers.iter().filter_map(Value::as_u64).sum::<u64>()
    };
    let total = &timeline["arrivals_per_100ms"];
    assert_eq!((sum(&total["arrivals"]), sum(&total["refused"])), (5, 2));
    assert_eq!(sum(&timeline["by_class"]["otp"]["arrivals"]), 3);
    assert_eq!(sum(&timeline["by_class"]["marketing"]["accepted"]), 1);
    Ok(())
}

#[tokio::test]
async fn models_can_be_listed_and_named() -> TestResult {
    let sim = Sim::start(Settings::default()).await?;
    let mut client = sim.connect().await?;
    let list = client.get("/_sim/models").await?.json()?;
    let names = |kind: &str| -> Vec<String> {
        let all = list[kind].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect()
    };
    for name in ["rolling", "fixed", "per-100ms", "leaky", "completion", "concurrency", "minute"] {
        assert!(names("models").iter().any(|known| known == name), "{name}");
        let set = client.post("/_sim/model", &json!({"model": name}).to_string()).await?;
        assert_eq!(set.json()?["model"], name);
        let report = client.report().await?;
        assert!(report["windows"][0]["kind"].is_string(), "{name}: {report}");
        assert!(report["windows"][0]["refused"].is_number(), "{name}: {report}");
    }
    assert!(names("retry_after").iter().any(|name| name == "http-date"));
    assert!(names("replies").iter().any(|name| name == "vonage"));
    Ok(())
}

#[tokio::test]
async fn a_restart_begins_fixed_windows_anew() -> TestResult {
    let settings = Settings {
        model: "fixed".to_owned(),
        limit: 1,
        window: Duration::from_secs(3600),
        ..Settings::default()
    };
    let sim = Sim::start(settings).await?;
    let mut client = sim.connect().await?;
    assert_eq!(client.post("/", "").await?.status, StatusCode::OK);
    assert_eq!(client.post("/", "").await?.status, StatusCode::TOO_MANY_REQUESTS);
    for body in ["", r#"{"phase":"370ms"}"#] {
        assert_eq!(client.post("/_sim/restart", body).await?.status, StatusCode::OK);
        assert_eq!(client.post("/", "").await?.status, StatusCode::OK);
    }
    let wrong = client.post("/_sim/restart", r#"{"fase":"1s"}"#).await?;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert!(wrong.body.contains("fase"), "{}", wrong.body);
    Ok(())
}
