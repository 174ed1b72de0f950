//! What an operator sees, under the names that are documented.

use crate::harness::{Stack, call::burst, eventually, ms};

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_says_class_reason_and_wait_of_every_request() {
    let stack = Stack::up(&[]);
    let (answers, _) = burst(stack.gateway(0), "otp", 20).await;
    let passed = answers.iter().filter(|answer| answer.passed()).count();
    // Envoy writes its log twice a second here.
    let lines = eventually(ms(3_000), "20 lines in the access log", async || {
        let lines = stack.access_log(0);
        (lines.len() >= 20).then_some(lines)
    })
    .await;
    for line in &lines {
        assert_eq!(line["weir_class"], "otp", "{line}");
        // Missing where the answer was known at once.
        let wait = line["weir_wait"].as_str().map_or(Some(0), |ms| ms.parse::<u64>().ok());
        assert!(wait.is_some_and(|ms| ms < 1_000), "{line}");
        match line["status"].as_u64() {
            Some(200) => assert_eq!(line["weir_reason"], "granted", "{line}"),
            _ => {
                assert_eq!(line["weir_reason"], "rate", "{line}");
                assert_eq!(line["details"], "weir_refused", "{line}");
                assert!(line["upstream"].is_null() || line["upstream"] == "-", "{line}");
            }
        }
    }
    let granted = lines.iter().filter(|line| line["weir_reason"] == "granted").count();
    assert_eq!(granted, passed);
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
