//! Small promises that nothing else in the crate would miss if they broke.

use limits::{decision::Reason, gcra::Rate, retry_after, units::Micros};

#[test]
fn reasons_are_read_back_by_the_name_that_callers_see() {
    let named =
        [(Reason::Rate, "rate"), (Reason::ClassRate, "class_rate"), (Reason::Penalty, "penalty")];
    for (reason, name) in named {
        assert_eq!(reason.name(), name);
        let text = serde_json::to_string(&reason).unwrap();
        assert_eq!(text, format!("\"{name}\""));
        assert_eq!(serde_json::from_str::<Reason>(&text).unwrap(), reason);
    }
    assert!(serde_json::from_str::<Reason>("\"weather\"").is_err());
}

#[test]
fn a_tolerance_is_one_interval_for_each_of_the_burst_but_the_first() {
    let gcra = |burst| Rate { target: 90, per: Micros::SECOND, burst }.gcra();
    assert_eq!(gcra(1).tolerance(), Micros::ZERO);
    assert_eq!(gcra(5).tolerance(), Micros(4 * 11_112));
}

#[test]
fn milliseconds_are_rounded_up() {
    let millis = [0, 1, 1_000, 1_001].map(|us| Micros(us).ceil_millis());
    assert_eq!(millis, [0, 1, 1, 2]);
}

#[test]
fn a_date_is_told_up_to_the_end_of_the_year_9999() {
    let last = Micros::from_secs(253_402_300_799);
    assert_eq!(retry_after::date_text(last), "Fri, 31 Dec 9999 23:59:59 GMT");
    let epoch = "Thu, 01 Jan 1970 00:00:00 GMT";
    assert_eq!(retry_after::date_text(last.plus(Micros::SECOND)), epoch);
}
