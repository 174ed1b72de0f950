//! One-time passwords are never pushed out by marketing.

use lab::{Arrivals, Stream, Summary, Target, percentile};

use crate::harness::{Stack, ms};

/// 70/s with a burst of 5: `5 + ⌊1 s / 14,286 µs⌋` in any second, and one more for each of the
/// 20 ms by which the policy allows arrivals to bunch.
const MARKETING_MAX_IN_1S: u64 = 76;

#[tokio::test(flavor = "multi_thread")]
async fn every_otp_goes_through_at_once_while_marketing_floods() {
    let stack = Stack::up(&["--gateways", "2", "--deciders", "2", "--redis"]);
    let lasting = ms(10_000);
    let flood = Stream::new("marketing", Arrivals::Even { per_s: 200.0, lasting });
    let mut otp = Stream::new("otp", Arrivals::Even { per_s: 10.0, lasting });
    // Into a flood that is there already, and out of step with it.
    otp.starts_after = ms(333);
    let run = lab::send(&Target::new(&stack.ready.gateways), &[flood, otp]).await;
    let [marketing, otp] = [0, 1].map(|stream| Summary::of_stream(&run, stream));
    let took = |stream| {
        let of_stream = run.sent.iter().filter(move |sent| sent.stream == stream);
        let mut took: Vec<_> = of_stream.map(|sent| sent.took).collect();
        took.sort_unstable();
        took
    };
    // The provider answers at once here: all the time that a request takes is added on the way.
    let added = took(1);
    let at = |percent| percentile(&added, percent).expect("OTPs were sent");
    let report = stack.sim.report().await;
    let seen = report.of("marketing");
    println!(
        "OTP: {} sent, {} passed; added time p50 {:?}, p99 {:?}, longest {:?}",
        otp.sent,
        otp.passed,
        at(50.0),
        at(99.0),
        at(100.0)
    );
    println!(
        "marketing: {} sent, {} passed, {} refused; the provider saw {} in the worst 1 s",
        marketing.sent, marketing.passed, marketing.refused, seen.max_in_any_1s
    );
    report.assert_within_contract();
    assert_eq!((otp.sent, otp.passed), (100, 100), "refused: {:?}", otp.reasons);
    assert!(at(99.0) < ms(20), "p99 {:?}", at(99.0));
    assert!(seen.max_in_any_1s <= MARKETING_MAX_IN_1S, "{seen:?}");
    assert!(marketing.passed >= 650, "marketing has its 70/s: {marketing:?}");
    assert_eq!(marketing.failed(), 0, "{:?}", marketing.other_statuses);
    stack.assert_filter_is_well().await;
}
