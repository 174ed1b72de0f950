use axum::http::HeaderMap;

use super::*;

fn arrive(record: &mut Record, at_ms: u64, outcome: Outcome) -> u64 {
    record.arrive(Arrival {
        at_ns: at_ms * 1_000_000,
        outcome,
        status: Some(StatusCode::OK),
        method: &Method::POST,
        path: "/v1/messages",
        headers: HeaderBytes::default(),
    })
}

/// (arrivals, accepted, refused, max_in_any_1s)
fn check(counts: &Counts, expected: (u64, u64, u64, u64)) {
    let got = (counts.arrivals, counts.accepted, counts.refused, counts.max_in_any_1s);
    assert_eq!(got, expected);
}

#[test]
fn an_arrival_is_reported_before_its_body_ends() {
    let mut record = Record::default();
    let id = arrive(&mut record, 5, Outcome::Accepted);
    record.body(id, 10);
    let report = record.report();
    check(&report.total, (1, 1, 0, 1));
    check(&report.by_class["unknown"], (1, 1, 0, 1));
    assert_eq!((report.body_bytes, report.first_at_s), (10, Some(0.005)));
    assert!(!record.requests(1)[0].complete);
}

#[test]
fn classes_count_in_order_of_arrival_though_bodies_end_in_any_order() {
    let mut record = Record::default();
    let ids: Vec<u64> = [0, 600, 1100, 1500]
        .into_iter()
        .map(|at| arrive(&mut record, at, Outcome::Accepted))
        .collect();
    record.settle(ids[3], Some("otp"), true);
    record.settle(ids[1], Some("otp"), true);
    check(&record.report().by_class["otp"], (2, 2, 0, 2));
    record.settle(ids[0], Some("marketing"), true);
    record.settle(ids[2], Some("otp"), true);
    let report = record.report();
    check(&report.by_class["otp"], (3, 3, 0, 3));
    check(&report.by_class["marketing"], (1, 1, 0, 1));
    assert!(!report.by_class.contains_key("unknown"));
    assert!(record.waiting() == 0);
    let classes: Vec<String> = record.arrivals(0, 10).into_iter().map(|a| a.class).collect();
    assert_eq!(classes, ["marketing", "otp", "otp", "otp"]);
}

#[test]
fn sums_of_classes_are_the_totals() {
    let mut record = Record::default();
    for n in 0..100_u64 {
        let outcome = if n % 3 == 0 { Outcome::Refused } else { Outcome::Accepted };
        let id = arrive(&mut record, n, outcome);
        if n % 2 == 0 {
            record.settle(id, Some(if n % 4 == 0 { "otp" } else { "bulk" }), true);
        }
    }
    let report = record.report();
    let sum = |field: fn(&Counts) -> u64| report.by_class.values().map(field).sum::<u64>();
    assert_eq!(sum(|c| c.arrivals), 100);
    assert_eq!(sum(|c| c.refused), report.total.refused);
    assert_eq!(sum(|c| c.accepted), report.total.accepted);
    assert_eq!(report.total.refused, 34);
}

#[test]
fn too_many_classes_are_counted_together() {
    let mut record = Record::default();
    for n in 0..200 {
        let id = arrive(&mut record, n, Outcome::Accepted);
        record.settle(id, Some(&format!("class {n}")), true);
    }
    let report = record.report();
    // `unknown` has its place, but no arrivals.
    assert_eq!(report.by_class.len(), MAX_CLASSES - 1);
    assert_eq!(report.by_class["other"].arrivals, 200 - (MAX_CLASSES as u64 - 2));
}

#[test]
fn only_the_last_requests_are_kept_and_their_bodies_still_counted() {
    let mut record = Record::default();
    for n in 0..1_500 {
        arrive(&mut record, n, Outcome::Accepted);
    }
    record.body(1, 7);
    record.body(1_500, 3);
    let kept = record.requests(usize::MAX);
    assert_eq!((kept.len(), kept[0].id), (MAX_RECENT, 501));
    assert_eq!(record.requests(1)[0].body_bytes, 3);
    assert_eq!(record.report().body_bytes, 10);
}

/// Requests kept of 1,500 whose headers have a value of `bytes`.
fn kept_with_headers_of(bytes: usize) -> Result<usize, Box<dyn std::error::Error>> {
    let mut headers = HeaderMap::new();
    headers.append("x", "v".repeat(bytes).parse()?);
    let mut record = Record::default();
    for _ in 0..1_500 {
        record.arrive(Arrival {
            at_ns: 0,
            outcome: Outcome::Accepted,
            status: Some(StatusCode::OK),
            method: &Method::GET,
            path: "/",
            headers: HeaderBytes::new(&headers),
        });
    }
    Ok(record.recent.len())
}

#[test]
fn kept_headers_are_bounded_in_bytes() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(kept_with_headers_of(60_000)?, MAX_RECENT);
    // 10 bytes for the name, the path and the places of name and value.
    assert_eq!(kept_with_headers_of(131_072 - 10)?, MAX_RECENT_BYTES / 131_072);
    Ok(())
}

#[test]
fn a_full_log_is_said_and_the_counters_go_on() {
    let mut record = Record::default();
    for _ in 0..=MAX_LOG {
        let id = arrive(&mut record, 0, Outcome::Accepted);
        record.settle(id, None, true);
    }
    let report = record.report();
    assert!(report.arrivals_truncated);
    assert_eq!(report.total.arrivals, MAX_LOG as u64 + 1);
    assert_eq!(report.total.max_in_any_1s, MAX_LOG as u64 + 1);
}

#[test]
fn headers_keep_order_repeats_and_bytes_that_are_no_text() -> Result<(), Box<dyn std::error::Error>>
{
    let mut headers = HeaderMap::new();
    headers.append("x-priority", "otp".parse()?);
    headers.append("x-priority", "bulk".parse()?);
    headers.append("x-raw", axum::http::HeaderValue::from_bytes(b"a\xffb")?);
    let pairs = HeaderBytes::new(&headers).pairs();
    let expected = [("x-priority", "otp"), ("x-priority", "bulk"), ("x-raw", "a\u{fffd}b")];
    assert_eq!(pairs, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    Ok(())
}

#[test]
fn an_arrival_without_a_verdict_is_pending_until_it_has_one() {
    let mut record = Record::default();
    let id = record.arrive(Arrival {
        at_ns: 150_000_000,
        outcome: Outcome::Pending,
        status: None,
        method: &Method::POST,
        path: "/",
        headers: HeaderBytes::default(),
    });
    record.settle(id, Some("otp"), true);
    let report = record.report();
    assert_eq!((report.total.pending, report.by_class["otp"].pending), (1, 1));
    assert_eq!(record.arrivals(0, 1)[0].status, 0);
    record.decide(id, Outcome::Refused, StatusCode::FORBIDDEN);
    let report = record.report();
    assert_eq!((report.total.pending, report.total.refused), (0, 1));
    assert_eq!((report.by_class["otp"].pending, report.by_class["otp"].refused), (0, 1));
    assert_eq!(record.arrivals(0, 1)[0].status, 403);
    assert_eq!(record.requests(1)[0].status, 403);
    let timeline = record.timeline();
    assert_eq!(timeline.by_class["otp"].refused, [0, 1]);
    assert_eq!(timeline.arrivals_per_100ms.arrivals, [0, 1]);
    assert_eq!(record.waiting(), 0);
}

#[test]
fn a_pending_arrival_holds_back_those_after_it_but_not_their_counts() {
    let mut record = Record::default();
    let first = arrive(&mut record, 0, Outcome::Pending);
    let second = arrive(&mut record, 1, Outcome::Accepted);
    for id in [first, second] {
        record.settle(id, Some("otp"), true);
    }
    check(&record.report().by_class["otp"], (2, 1, 0, 2));
    record.decide(first, Outcome::Accepted, StatusCode::OK);
    check(&record.report().by_class["otp"], (2, 2, 0, 2));
}

#[test]
fn the_timeline_agrees_with_the_report() {
    let mut record = Record::default();
    for n in 0..100_u64 {
        let outcome = if n % 3 == 0 { Outcome::Refused } else { Outcome::Accepted };
        let id = arrive(&mut record, n * 13, outcome);
        if n % 2 == 0 {
            record.settle(id, Some("otp"), true);
        }
    }
    let (report, timeline) = (record.report(), record.timeline());
    assert_eq!(timeline.arrivals_per_100ms.arrivals.len(), 13);
    assert_eq!(timeline.arrivals_per_100ms.arrivals[0], 8);
    for class in ["otp", "unknown"] {
        let refused: u32 = timeline.by_class[class].refused.iter().sum();
        assert_eq!(u64::from(refused), report.by_class[class].refused, "{class}");
    }
}
