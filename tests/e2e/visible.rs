//! What an operator sees, under the names that are documented.

use serde_json::{Value, json};

use crate::harness::{
    Stack,
    call::burst,
    eventually,
    files::{Template, yaml},
    ms,
};

/// Reasons in the access log of what went to the provider.
const PASSED: [&str; 2] = ["granted", "fallback"];

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_says_class_reason_and_wait_of_every_request() {
    let stack = Stack::up(&[]);
    let (mut answers, _) = burst(stack.gateway(0), "otp", 20).await;
    stack.sim.force(1, 429, &[("retry-after", "9")]).await;
    let throttled = eventually(ms(2_000), "a request reaches the provider", async || {
        let answer = stack.send("otp").await;
        let came_from_there = answer.reason().is_none();
        answers.push(answer);
        came_from_there.then_some(answers.len() - 1)
    })
    .await;
    answers.push(stack.send("otp").await);
    // Envoy writes its log twice a second here.
    let lines = eventually(ms(3_000), "all lines in the access log", async || {
        let lines = stack.access_log(0);
        (lines.len() >= answers.len()).then_some(lines)
    })
    .await;
    for line in &lines {
        assert_eq!(line["weir_class"], "otp", "{line}");
        let wait = line["weir_wait"].as_str().and_then(|ms| ms.parse::<u64>().ok());
        assert!(wait.is_some_and(|ms| ms < 1_000), "{line}");
        let refused = !PASSED.map(Value::from).contains(&line["weir_reason"]);
        let reason = line["weir_reason"].as_str().expect("a reason");
        let ours = format!("weir_refused:otp:{reason}");
        assert_eq!(line["details"], if refused { ours.as_str() } else { "via_upstream" });
        assert_eq!(line["upstream"].is_null() || line["upstream"] == "-", refused, "{line}");
    }
    // Each caller was told what the log says; who passed, or met the provider's 429, was granted.
    let mut told: Vec<_> = answers.iter().map(|answer| answer.reason()).collect();
    assert_eq!(answers[throttled].status, 429);
    assert_eq!(told.last(), Some(&Some("penalty".to_owned())));
    told.sort();
    let refused = |line: &Value| {
        let reason = line["weir_reason"].as_str().expect("a reason");
        (!PASSED.contains(&reason)).then(|| reason.to_owned())
    };
    let mut logged: Vec<_> = lines.iter().map(refused).collect();
    logged.sort();
    assert_eq!(logged, told);
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_finds_every_counter_at_zero_from_the_start() {
    let stack = Stack::up(&[]);
    let admin = &stack.ready.admin[0];
    let metrics = async || {
        let path = "/stats/prometheus";
        let reply = stack.client.get(admin, path, ms(2_000)).await.expect("metrics");
        String::from_utf8_lossy(&reply.body).into_owned()
    };
    let has = |text: &str, name: &str, value: u64| {
        let line = format!("{name}{{}} {value}");
        assert!(text.lines().any(|found| found == line), "no line {line:?}");
    };
    let of_limit = [
        "calls",
        "probes",
        "calls_failed",
        "breaker_opened",
        "claims_refused",
        "throttled",
        "retry_after_invalid",
        "reports_dropped",
        "broken",
    ];
    let of_class = [
        "granted",
        "fallback",
        "refused_rate",
        "refused_class_rate",
        "refused_penalty",
        "refused_decider_unavailable",
        "refused_queue_full",
    ];
    let text = metrics().await;
    for name in of_limit {
        has(&text, &format!("weir_sms_acct_main_{name}"), 0);
    }
    for name in of_class {
        has(&text, &format!("weir_sms_acct_main_otp_{name}"), 0);
        has(&text, &format!("weir_sms_acct_main_marketing_{name}"), 0);
    }
    assert_eq!(stack.send("otp").await.status, 200);
    let text = metrics().await;
    has(&text, "weir_sms_acct_main_otp_granted", 1);
    has(&text, "weir_sms_acct_main_calls", 1);
}

/// The policy is being rolled out: gateway and decider do not run the same one.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_another_policy_is_served_and_told_of() {
    let mut template = Template::sample();
    let mut policy = yaml("envoy/policy.yaml");
    policy["path_jitter"] = json!("19ms");
    let plugin = json!({ "decider": { "cluster": "weir" }, "policy": policy }).to_string();
    template.http_filters()[0]["typed_config"]["config"]["configuration"]["value"] = json!(plugin);
    let stack = Stack::up(&["--envoy", &template.write(), "--keep-plugin-config"]);
    assert_eq!(stack.send("otp").await.status, 200);
    assert_eq!(stack.counted("calls_failed").await, 0);
    let decider = &stack.ready.deciders[0];
    let metrics = stack.client.get(decider, "/metrics", ms(2_000)).await.expect("metrics");
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let mismatch = text.lines().find(|line| line.contains("mismatch") && line.ends_with(" 1"));
    assert!(mismatch.is_some(), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_limit_is_left_alone() {
    let stack = Stack::up(&[]);
    let headers = [("host", "other.example.com"), ("x-priority", "otp")];
    for _ in 0..10 {
        let answer = crate::harness::call(&stack.client, stack.gateway(0), &headers).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(stack.counted("calls").await, 0);
    assert_eq!(stack.sim.report().await.total.arrivals, 10);
    let seen = stack.sim.last_request().await;
    assert!(seen.headers.contains(&("x-priority".to_owned(), "otp".to_owned())), "as it was sent");
}
