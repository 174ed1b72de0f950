//! One grant is one call to the provider: nothing behind the filter sends a request again, and what
//! a client sends again is counted again.

use serde_json::json;

use crate::harness::{
    Stack,
    call::{call, call_at},
    eventually,
    files::Template,
    ms,
    python::python,
};

const UNLIMITED_HOST: &str = "unlimited.example.com";

/// What callers put on a request to have Envoy send it again; the first makes the caller count as
/// internal, whose fields Envoy believes.
const RETRY_FIELDS: [(&str, &str); 8] = [
    ("x-forwarded-for", "10.0.0.1"),
    ("x-envoy-retry-on", "5xx,retriable-status-codes,reset"),
    ("x-envoy-retry-grpc-on", "resource-exhausted,unavailable"),
    ("x-envoy-retriable-status-codes", "429,503"),
    ("x-envoy-retriable-header-names", "server"),
    ("x-envoy-max-retries", "3"),
    ("x-envoy-hedge-on-per-try-timeout", "true"),
    ("x-envoy-upstream-rq-per-try-timeout-ms", "100"),
];

/// The sample without what it does itself against retries: only the filter is left.
fn unprotected() -> Template {
    let mut template = Template::sample();
    let private = json!({ "address_prefix": "10.0.0.0", "prefix_len": 8 });
    template.hcm()["internal_address_config"] = json!({ "cidr_ranges": [private] });
    let fields = template.routes().as_object_mut().expect("a route configuration");
    fields.remove("request_headers_to_remove");
    let circuit_breakers = &mut template.cluster("provider")["circuit_breakers"];
    circuit_breakers["thresholds"][0]["max_retries"] = json!(100);
    template
}

/// How often the provider was called for one request that it answers with `status`.
async fn calls_for_one(stack: &Stack, host: &str, fields: &[(&str, &str)], status: u16) -> u64 {
    stack.sim.reset().await;
    stack.sim.force(10, status, &[]).await;
    let mut headers = vec![("host", host), ("x-priority", "otp")];
    headers.extend(fields);
    call(&stack.client, stack.gateway(0), &headers).await;
    stack.sim.set(json!({ "force": null })).await;
    stack.sim.report().await.total.arrivals
}

/// The same for a request that the provider answers late, so that it is hedged.
async fn calls_for_one_slow(stack: &Stack, host: &str, fields: &[(&str, &str)]) -> u64 {
    stack.sim.reset().await;
    stack.sim.set(json!({ "latency": "350ms" })).await;
    let mut headers = vec![("host", host), ("x-priority", "otp")];
    headers.extend(fields);
    call(&stack.client, stack.gateway(0), &headers).await;
    stack.sim.set(json!({ "latency": "0s" })).await;
    stack.sim.report().await.total.arrivals
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_retry_fields_cause_no_second_call() {
    let stack = Stack::up(&["--envoy", &unprotected().write()]);
    // Without the filter they do, or this test would show nothing.
    assert!(calls_for_one(&stack, UNLIMITED_HOST, &RETRY_FIELDS, 503).await > 1);
    assert!(calls_for_one_slow(&stack, UNLIMITED_HOST, &RETRY_FIELDS).await > 1);

    let host = "sms.example.com";
    assert_eq!(calls_for_one(&stack, host, &RETRY_FIELDS, 503).await, 1);
    assert_eq!(calls_for_one_slow(&stack, host, &RETRY_FIELDS).await, 1);
    assert_eq!(calls_for_one(&stack, host, &RETRY_FIELDS, 429).await, 1);
    assert_eq!(stack.counted("otp.granted").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routes_retry_policy_causes_no_second_call() {
    let mut template = unprotected();
    let policy = json!({
        "retry_on": "5xx,retriable-status-codes,reset",
        "retriable_status_codes": [429],
        "num_retries": 3,
        "per_try_timeout": "0.1s",
    });
    for host in template.routes()["virtual_hosts"].as_array_mut().expect("virtual hosts") {
        host["routes"][0]["route"]["retry_policy"] = policy.clone();
        host["routes"][0]["route"]["hedge_policy"] = json!({ "hedge_on_per_try_timeout": true });
    }
    let stack = Stack::up(&["--envoy", &template.write()]);
    assert!(calls_for_one(&stack, UNLIMITED_HOST, &[], 429).await > 1);
    assert!(calls_for_one_slow(&stack, UNLIMITED_HOST, &[]).await > 1);

    let host = "sms.example.com";
    assert_eq!(calls_for_one(&stack, host, &[], 503).await, 1);
    assert_eq!(calls_for_one_slow(&stack, host, &[]).await, 1);
    assert_eq!(calls_for_one(&stack, host, &[], 429).await, 1);
    assert_eq!(stack.counted("otp.granted").await, 3);
}

/// Every worker thread of a client sends until it got through, up to eight times.
const RETRYING_CLIENTS: &str = r#"
import json, sys, threading
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

statuses = []
def client():
    retry = Retry(total=8, status_forcelist=[429, 503], allowed_methods=None,
                  respect_retry_after_header=False, backoff_factor=0.01, raise_on_status=False)
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", HTTPAdapter(max_retries=retry))
    for _ in range(10):
        answer = session.post("http://%s/v1/messages" % sys.argv[1], json={"class": "marketing"},
                              headers={"host": "sms.example.com", "x-priority": "marketing"})
        statuses.append(answer.status_code)

threads = [threading.Thread(target=client) for _ in range(12)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps({"passed": statuses.count(200), "all": len(statuses)}))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_librarys_retries_are_counted_one_by_one() {
    let stack = Stack::up(&[]);
    // Some of what is granted fails at the provider, so clients also send again what had arrived.
    stack.sim.force(20, 503, &[]).await;
    let run = python(RETRYING_CLIENTS, &[stack.gateway(0)]).await;
    let report = stack.sim.report().await;
    assert_eq!(run["all"], 120);
    assert_eq!(stack.counted("marketing.granted").await, report.total.arrivals);
    assert_eq!(run["passed"], report.total.accepted, "what the provider took, a client knows of");
    assert_eq!(report.total.arrivals, report.total.accepted + 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_sees_none_of_our_fields() {
    let stack = Stack::up(&["--envoy", &unprotected().write()]);
    let ours = [("x-weir-class", "otp"), ("x-weir-limit", "other"), ("x-weir-gateway", "mine")];
    let mut headers = vec![("x-priority", "otp"), ("x-caller", "kept")];
    headers.extend(RETRY_FIELDS.iter().skip(1).chain(&ours));
    let answer = call_at(&stack.client, stack.gateway(0), "/v1/messages?a=b", &headers).await;
    assert_eq!(answer.status, 200);
    eventually(ms(500), "the request is whole", async || {
        stack.sim.last_request().await.complete.then_some(())
    })
    .await;
    let seen = stack.sim.last_request().await;
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/messages?a=b"));
    let has = |name: &str| seen.headers.iter().any(|(seen, _)| seen == name);
    assert!(has("x-caller"));
    for (name, _) in headers.iter().filter(|(name, _)| *name != "x-caller") {
        assert!(!has(name), "the provider saw {name}: {:?}", seen.headers);
    }
}
