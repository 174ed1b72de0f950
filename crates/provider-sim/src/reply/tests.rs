use std::time::UNIX_EPOCH;

use super::*;

/// 1994-11-06 08:49:36.25 UTC, a second before the RFC's example once rounded up.
const NOW_MS: u64 = 784_111_776_250;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(NOW_MS)
}

fn refusal(form: &str) -> Refusal {
    Refusal {
        status: StatusCode::TOO_MANY_REQUESTS,
        retry_after: retry_after(form),
        headers: Vec::new(),
        body: None,
        wait: None,
        clock_offset_s: 0,
    }
}

/// The fields that `form` sends for a wait of `wait_ms`.
fn check(form: &str, wait_ms: u64, expected: &[&str]) {
    let rendered = refusal(form).render(now(), Duration::from_millis(wait_ms));
    let texts: Vec<_> = rendered.headers.iter().filter_map(|(_, v)| v.to_str().ok()).collect();
    assert_eq!(texts, expected, "{form} for {wait_ms} ms");
}

#[test]
fn numbers_are_rounded_up_but_where_the_form_is_to_deceive() {
    check("seconds", 1_001, &["2"]);
    check("seconds", 60_000, &["60"]);
    check("floored", 1_999, &["1"]);
    check("decimal", 493, &["0.493"]);
    check("decimal", 2_000, &["2.000"]);
    check("unit", 60_000, &["60s"]);
    check("negative", 1_000, &["-1"]);
}

#[test]
fn go_durations_carry_every_smaller_unit() {
    check("go-duration", 999, &["1s"]);
    check("go-duration", 60_000, &["1m0s"]);
    check("go-duration", 3_600_000, &["1h0m0s"]);
}

#[test]
fn dates_come_in_the_three_forms_of_http() {
    check("http-date", 750, &["Sun, 06 Nov 1994 08:49:37 GMT"]);
    check("rfc850-date", 750, &["Sunday, 06-Nov-94 08:49:37 GMT"]);
    check("asctime-date", 750, &["Sun Nov  6 08:49:37 1994"]);
    check("lowercase-date", 750, &["sun, 06 nov 1994 08:49:37 gmt"]);
    check("past-date", 750, &["Sun, 06 Nov 1994 07:49:37 GMT"]);
}

#[test]
fn a_date_is_never_before_the_time_it_means() {
    check("http-date", 751, &["Sun, 06 Nov 1994 08:49:38 GMT"]);
}

#[test]
fn the_epoch_counts_seconds_or_milliseconds() {
    check("epoch-s", 750, &["784111777"]);
    check("epoch-ms", 750, &["784111777000"]);
}

#[test]
fn several_fields_are_several_fields() {
    check("several", 3_000, &["0", "3", "soon"]);
    check("duplicate", 3_000, &["3", "3"]);
    check("comma", 3_000, &["0, 3"]);
    check("none", 3_000, &[]);
    check("empty", 3_000, &[""]);
}

#[test]
fn free_text_is_sent_as_it_stands() {
    check("nan", 1_000, &["nan"]);
    check("in {a} moment {", 1_000, &["in {a} moment {"]);
    check("{ms} ms or {s}s", 1_500, &["1500 ms or 2s"]);
}

#[test]
fn a_wait_that_is_set_is_said_whatever_the_model_would_say() {
    let refusal = Refusal { wait: Some(Duration::from_secs(7)), ..refusal("seconds") };
    let rendered = refusal.render(now(), Duration::from_millis(3));
    assert_eq!(rendered.headers[0].1, "7");
}

#[test]
fn body_and_other_fields_are_filled_in_too() {
    let body = r#"{"messages":[{"status":"1","error-text":"please wait [{ms}]"}]}"#;
    let refusal = Refusal {
        headers: vec![(HeaderName::from_static("x-reset"), Template::parse("{epoch-s}"))],
        body: Some(Template::parse(body)),
        ..refusal("none")
    };
    let rendered = refusal.render(now(), Duration::from_millis(978));
    assert_eq!(rendered.headers[0].1, "784111778");
    let expected = r#"{"messages":[{"status":"1","error-text":"please wait [978]"}]}"#;
    assert_eq!(rendered.body.as_deref(), Some(expected));
}

#[test]
fn dates_are_by_the_providers_clock() {
    let refusal = Refusal { clock_offset_s: -60, ..refusal("http-date") };
    let rendered = refusal.render(now(), Duration::from_millis(750));
    assert_eq!(rendered.headers[0].1, "Sun, 06 Nov 1994 08:48:37 GMT");
    assert_eq!(imf_date(offset(now(), 3600)), "Sun, 06 Nov 1994 09:49:36 GMT");
}
