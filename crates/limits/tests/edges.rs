//! Small promises that nothing else in the crate would miss if they broke.

use limits::{
    decision::{Reason, Rules, State, decide},
    gcra::{Gcra, Rate},
    members::{Ask, Standing},
    policy::Throttle,
    retry_after::{self, Said},
    units::Micros,
    wire::DecideRequest,
};

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
fn standings_are_read_back_by_their_name() {
    let named =
        [(Standing::Late, "late"), (Standing::Guest, "guest"), (Standing::Member, "member")];
    for (standing, name) in named {
        assert_eq!(standing.name(), name);
        let text = serde_json::to_string(&standing).unwrap();
        assert_eq!(text, format!("\"{name}\""));
        assert_eq!(serde_json::from_str::<Standing>(&text).unwrap(), standing);
    }
    assert!(serde_json::from_str::<Standing>("\"chairman\"").is_err());
}

/// An older decider knows nothing of leaving: it is spoken of only when it is meant.
#[test]
fn an_ask_says_that_it_leaves_only_when_it_does() {
    let ask = |leaves| DecideRequest {
        limit: String::new(),
        policy: String::new(),
        gateway: String::new(),
        deadline_us: None,
        leaves,
        wants: Vec::new(),
    };
    let said = |leaves| serde_json::to_value(ask(leaves)).unwrap().get("leaves").cloned();
    assert_eq!((said(false), said(true)), (None, Some(true.into())));
}

/// No time takes so many letters: what is longer is not looked at.
#[test]
fn a_field_is_read_up_to_256_bytes() {
    let throttle = Throttle {
        statuses: vec![429],
        default_pause: Micros::SECOND,
        max_pause: Micros::from_secs(3_600),
    };
    let said = |field: &str| retry_after::pause([field.as_bytes()], None, Micros::ZERO, &throttle);
    let padded = |length: usize| format!("{:>length$}", 7);
    assert_eq!(said(&padded(256)), (Micros::from_secs(7), Said::Time));
    assert_eq!(said(&padded(257)), (Micros::SECOND, Said::Invalid));
}

#[test]
fn each_class_is_charged_at_the_places_of_its_own_rates() {
    let second = |target, burst| Rate { target, per: Micros::SECOND, burst }.gcra();
    let (whole, otp) = (second(90, 9), second(10, 2));
    let (bulk, bulk_too) = (second(20, 3), second(40, 4));
    let rules = Rules {
        limit: vec![whole],
        classes: vec![vec![otp], vec![], vec![bulk, bulk_too]],
        max_pause: Micros::from_secs(3_600),
        terms: None,
    };
    let (now, mut state) = (Micros::from_secs(1_700_000_000), State::default());
    let ask = Ask { caller: None, wants: vec![2, 1, 3] };
    let outcome = decide(&rules, &mut state, now, &[ask]);
    let granted: Vec<u64> = outcome.shares.iter().map(|share| share.granted).collect();
    assert_eq!(granted, [2, 1, 3]);
    let charged = |gcra: Gcra, n| now.plus(gcra.emission_interval().times(n));
    let expected = [charged(whole, 6), charged(otp, 2), charged(bulk, 3), charged(bulk_too, 3)];
    assert_eq!(state.tats, expected);
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
