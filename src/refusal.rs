//! Our 429.
//!
//! Promise: whatever client library reads it, it waits long enough and does not break: `retry-after`
//! is one integer, rounded up, 1 to 60 (libraries raise on fractions, overflow timers on large ones,
//! or block for hours); the exact time is in `retry-after-ms` and in the body. Sidecars do not send
//! again what carries `x-envoy-ratelimited`. Fields: RFC 9110 10.2.3 (Retry-After), RFC 9457 (problem
//! details), draft-ietf-httpapi-ratelimit-headers (RateLimit, RateLimit-Policy).

use limits::{Micros, policy::Limit, retry_after};
use serde::Serialize;

use crate::gate::{Cause, Refused};

/// Longest time told in a header.
const TOLD_MAX: Micros = Micros::from_secs(60);
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

/// `%RESPONSE_CODE_DETAILS%` of a refusal in Envoy's access log: `weir_refused:<class>:<reason>`.
pub fn details(class: &str, cause: Cause) -> String {
    format!("weir_refused:{class}:{}", cause.name())
}

/// Problem details (RFC 9457) of a refusal.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'static str,
    limit: &'a str,
    class: &'a str,
    reason: &'static str,
    retry_after_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    upstream_attempted: bool,
}

/// Body of a refusal. `wall_now` gives µs since the epoch; it is looked at for a stop that is longer
/// than the header fields can tell.
pub fn body(
    limit: &Limit,
    class: &str,
    refused: Refused,
    wall_now: impl FnOnce() -> Micros,
) -> Vec<u8> {
    let untold = refused.wait > TOLD_MAX;
    let problem = Problem {
        r#type: "about:blank",
        title: "Too Many Requests",
        status: 429,
        detail: refused.cause.explained(),
        limit: &limit.name,
        class,
        reason: refused.cause.name(),
        retry_after_ms: refused.wait.ceil_millis().max(1),
        retry_at: untold.then(|| retry_after::date_text(wall_now().plus(refused.wait))),
        upstream_attempted: false,
    };
    serde_json::to_vec(&problem).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use limits::decision::Reason;

    use super::*;
    use crate::calls::tests::limit;

    /// A field of the reply to a caller who has to wait so many µs.
    fn field(name: &str, wait_us: u64) -> String {
        let headers = headers(&limit(), Micros(wait_us));
        headers.into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn retry_after_is_a_whole_number_from_1_to_60_rounded_up() {
        for (wait_us, told) in [(0, "1"), (1, "1"), (1_000_000, "1"), (1_000_001, "2")] {
            assert_eq!(field("retry-after", wait_us), told, "{wait_us}");
        }
        assert_eq!(field("retry-after", 3_600_000_000), "60");
    }

    #[test]
    fn the_exact_time_is_in_milliseconds_rounded_up() {
        assert_eq!(field("retry-after-ms", 14_286), "15");
        assert_eq!(field("retry-after-ms", 0), "1");
        assert_eq!(field("retry-after-ms", 3_600_000_000), "60000");
    }

    #[test]
    fn libraries_are_told_not_to_wait_out_a_long_stop() {
        assert_eq!(field("x-should-retry", 60_000_000), "true");
        assert_eq!(field("x-should-retry", 60_000_001), "false");
    }

    #[test]
    fn sidecars_and_standard_fields_are_served() {
        assert_eq!(field("x-envoy-ratelimited", 1), "true");
        assert_eq!(field("ratelimit-policy", 1), "\"sms\";q=90;w=1");
        assert_eq!(field("ratelimit", 2_500_000), "\"sms\";r=0;t=3");
    }

    #[test]
    fn the_body_tells_the_true_time_of_a_long_stop() {
        let wait = Micros::from_secs(3_600);
        let refused = Refused { wait, cause: Cause::Decided(Reason::Penalty) };
        let body = body(&limit(), "otp", refused, || Micros::from_secs(784_111_777));
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["retry_after_ms"], 3_600_000);
        assert_eq!(body["retry_at"], "Sun, 06 Nov 1994 09:49:37 GMT");
        assert_eq!(body["status"], 429);
        assert_eq!((&body["limit"], &body["class"]), (&"sms".into(), &"otp".into()));
        assert_eq!(body["reason"], "penalty");
        assert_eq!(body["upstream_attempted"], false);
    }

    #[test]
    fn a_providers_throttle_fields_are_known_by_their_beginnings() {
        for name in ["retry-after", "x-ratelimit-reset", "ratelimit", "RateLimit-Retry-After"] {
            assert!(is_throttle_header(&name.to_ascii_lowercase()), "{name}");
        }
        assert!(!is_throttle_header("x-request-id"));
    }
}
