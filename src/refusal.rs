//! Our 429.
//!
//! Promise: whatever client library reads it, it waits long enough and does not break: `retry-after`
//! is one integer, rounded up, 1 to 60 (libraries raise on fractions, overflow timers on large ones,
//! or block for hours); the exact time is in `retry-after-ms` and in the body. Sidecars do not send
//! again what carries `x-envoy-ratelimited`. Fields: RFC 9110 10.2.3 (Retry-After), RFC 9457 (problem
//! details), draft-ietf-httpapi-ratelimit-headers (RateLimit, RateLimit-Policy).

use limits::{Micros, policy::Limit, retry_after};
use serde_json::json;

use crate::gate::Refused;

/// Longest time told in a header.
const TOLD_MAX: Micros = Micros::from_secs(60);
/// `code_details` of our replies in Envoy's access log.
pub const DETAILS: &str = "weir_refused";
/// RESOURCE_EXHAUSTED.
pub const GRPC_STATUS: i32 = 8;

/// Header fields as they are sent.
pub type Headers = Vec<(&'static str, String)>;

/// The fields every throttled reply carries, our own and a provider's that is passed on.
pub fn headers(limit: &Limit, wait: Micros) -> Headers {
    let told = wait.max(Micros(1)).min(TOLD_MAX);
    let seconds = told.ceil_secs().to_string();
    let quota = limit.rates.first().map_or((0, 1), |rate| (rate.target, rate.per.ceil_secs()));
    let name = &limit.name;
    vec![
        ("retry-after-ms", told.ceil_millis().to_string()),
        ("x-should-retry", (wait <= TOLD_MAX).to_string()),
        ("x-envoy-ratelimited", "true".to_owned()),
        ("ratelimit-policy", format!("\"{name}\";q={};w={}", quota.0, quota.1)),
        ("ratelimit", format!("\"{name}\";r=0;t={seconds}")),
        ("retry-after", seconds),
    ]
}

/// Body of a refusal. `wall_now` is µs since the epoch.
pub fn body(limit: &Limit, class: &str, refused: Refused, wall_now: Micros) -> Vec<u8> {
    let problem = json!({
        "type": "about:blank",
        "title": "Too Many Requests",
        "status": 429,
        "detail": format!("held back by limit {} ({})", limit.name, refused.cause.name()),
        "limit": limit.name,
        "class": class,
        "reason": refused.cause.name(),
        "retry_after_ms": refused.wait.ceil_millis().max(1),
        "retry_at": retry_after::date_text(wall_now.plus(refused.wait)),
        "upstream_attempted": false,
    });
    problem.to_string().into_bytes()
}

/// Is this a field of a provider's throttled reply that must not reach callers? Ours take its place.
pub fn is_throttle_header(name: &str) -> bool {
    const PREFIXES: [&str; 6] = [
        "retry-after",
        "ratelimit",
        "x-ratelimit",
        "x-rate-limit",
        "x-retry-after",
        "x-should-retry",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
