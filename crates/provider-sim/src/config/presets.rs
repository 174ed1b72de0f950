//! Settings by name.

use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Value, json};

use super::merge::Document;

/// The model of windows that were listed by hand.
pub const CUSTOM: &str = "custom";

#[derive(Debug, Serialize)]
pub struct Preset {
    pub name: &'static str,
    pub about: &'static str,
    pub sets: Document,
}

fn preset(name: &'static str, about: &'static str, sets: Value) -> Preset {
    let sets = match sets {
        Value::Object(sets) => sets,
        _ => Document::new(),
    };
    Preset { name, about, sets }
}

/// How the provider counts.
pub static MODELS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let second = json!({"kind": "rolling", "limit": 100, "window": "1s"});
    vec![
        preset(
            "rolling",
            "at most LIMIT in any WINDOW, wherever it is laid",
            json!({"windows": null}),
        ),
        preset(
            "fixed",
            "a counter that starts again at PHASE and every WINDOW after it",
            json!({"windows": null}),
        ),
        preset(
            "fixed-phase",
            "100 in each second of a clock that is 370 ms off ours",
            json!({"windows": [{"kind": "fixed", "limit": 100, "window": "1s", "phase": "370ms"}]}),
        ),
        preset(
            "fixed-jump",
            "100 in each second, the counter restarting 370 ms later each 2 s",
            json!({"windows": [{"kind": "fixed", "limit": 100, "window": "1s",
                "jump": {"every": "2s", "by": "370ms"}}]}),
        ),
        preset(
            "per-100ms",
            "10 in any 100 ms",
            json!({"windows": [{"kind": "rolling", "limit": 10, "window": "100ms"}]}),
        ),
        preset(
            "leaky",
            "a bucket of 10 that drains 100/s",
            json!({"windows": [{"kind": "leaky", "limit": 100, "window": "1s", "capacity": 10}]}),
        ),
        preset(
            "token-bucket",
            "a bucket of 100 that fills with 100/s",
            json!({"windows": [{"kind": "leaky", "limit": 100, "window": "1s", "capacity": 100}]}),
        ),
        preset(
            "completion",
            "100 in any 1 s, counted when worked off, which stalls for 1.5 s each 20 s",
            json!({"windows": [second], "counted": "completion", "latency": "80ms",
                "jitter": "20ms", "stall": {"every": "20s", "for": "1500ms"}}),
        ),
        preset(
            "concurrency",
            "20 at the same time, and the work on each slows from 80 ms to 400 ms for 12 s",
            json!({"windows": [{"kind": "concurrency", "limit": 20}], "latency": "80ms",
                "schedule": [{"at": "2s", "set": {"latency": "400ms"}},
                    {"at": "14s", "set": {"latency": "80ms"}}]}),
        ),
        preset(
            "minute",
            "100 in any 1 s and 5000 in any minute",
            json!({"windows": [second, {"kind": "rolling", "limit": 5000, "window": "1m"}]}),
        ),
        preset(
            "count-refused",
            "100 in any 1 s, refused calls counting too",
            json!({"windows": [second], "count_refused": true}),
        ),
        preset(
            "budget",
            "100 in any 1 s; 301 refusals within 10 min stop the account for 60 min",
            json!({"windows": [second], "suspend_after": 300, "suspend_within": "10m",
                "suspend_for": "60m"}),
        ),
        preset(CUSTOM, "the list of windows that is given", json!({"windows": null})),
    ]
});

/// What a refusal looks like. Fields given beside the name have the last word.
pub static REPLIES: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    vec![
        preset("429", "429 with Retry-After", json!({"status": 429})),
        preset("503", "503 with Retry-After", json!({"status": 503})),
        preset(
            "403",
            "403, told from a real one by its body only",
            json!({"status": 403, "retry_after": null,
                "refusal_body": r#"{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"rateLimitExceeded"}]}}"#}),
        ),
        preset(
            "vonage",
            "200 whose body says status 1, the wait in ms in its text",
            json!({"status": 200, "retry_after": null, "retry_after_in": null,
                "refusal_body": r#"{"message-count":"1","messages":[{"status":"1","error-text":"Throughput Rate Exceeded - please wait [{ms}] and retry"}]}"#}),
        ),
        preset(
            "twilio",
            "429 with code 20429: too many at the same time",
            json!({"status": 429, "retry_after": null,
                "refusal_body": r#"{"code":20429,"message":"Too Many Requests","status":429}"#}),
        ),
        preset(
            "aws",
            "400 ThrottlingException",
            json!({"status": 400, "retry_after": null,
                "refusal_body": r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#}),
        ),
        preset(
            "infobip",
            "429 with errorCode E429",
            json!({"status": 429, "retry_after": null,
                "refusal_body": r#"{"errorCode":"E429","description":"Too many requests"}"#}),
        ),
        preset(
            "mediabridge",
            "429 with RateLimit-Retry-After in ms",
            json!({"status": 429, "retry_after": null,
                "refusal_headers": {"ratelimit-retry-after": "{ms}"}}),
        ),
        preset(
            "line-quota",
            "429 whose body says that the month is used up: waiting is useless",
            json!({"status": 429, "retry_after": null,
                "refusal_body": r#"{"message":"You have reached your monthly limit."}"#}),
        ),
        preset(
            "shopify",
            "429 with Retry-After: 2.0",
            json!({"status": 429, "retry_after": "2.0"}),
        ),
        preset(
            "telegram",
            "420 with the wait in the body",
            json!({"status": 420, "retry_after": null,
                "refusal_body": r#"{"ok":false,"error_code":420,"parameters":{"retry_after":{s}}}"#}),
        ),
        preset(
            "github",
            "403 with the epoch second of the end in X-RateLimit-Reset",
            json!({"status": 403, "retry_after": null, "refusal_headers":
                {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "{epoch-s}"}}),
        ),
        preset(
            "binance",
            "429, and 418 while suspended",
            json!({"status": 429, "suspended_status": 418}),
        ),
    ]
});
