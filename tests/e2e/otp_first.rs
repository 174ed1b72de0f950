//! One-time passwords are never pushed out by marketing.

use lab::{Arrivals, Stream, Summary, percentile};

use crate::harness::{
    Stack, ms,
    noise::{check, on_a_calm_machine, send_beside_control, template_with_noop},
};

/// 70/s with a burst of 5: `5 + ⌊1 s / 14,286 µs⌋` in any second, and one more for each of the
/// 20 ms by which the policy allows arrivals to bunch.
const MARKETING_MAX_IN_1S: u64 = 76;

#[tokio::test(flavor = "multi_thread")]
async fn every_otp_goes_through_at_once_while_marketing_floods() {
    on_a_calm_machine(async || {
        let template = template_with_noop().write();
        let args = ["--gateways", "2", "--deciders", "2", "--redis", "--envoy", &template];
        let stack = Stack::up(&args);
        let lasting = ms(10_000);
        let flood = Stream::new("marketing", Arrivals::Even { per_s: 200.0, lasting });
        let mut otp = Stream::new("otp", Arrivals::Even { per_s: 10.0, lasting });
        // Into a flood that is there already, and out of step with it.
        otp.starts_after = ms(333);
        let (run, noise) = send_beside_control(&stack, &[flood, otp]).await;
        let [marketing, otp] = [0, 1].map(|stream| Summary::of_stream(&run, stream));
        // The provider answers at once here: all the time that a request takes is added.
        let of_otp = run.sent.iter().filter(|sent| sent.stream == 1);
        let mut added: Vec<_> = of_otp.map(|sent| sent.took).collect();
        added.sort_unstable();
        let at = |percent| percentile(&added, percent).expect("OTPs were sent");
        let report = stack.sim.report().await;
        let seen = report.of("marketing");
        println!(
            "OTP: {} sent, {} passed; added time p50 {:?}, p99 {:?}, longest {:?}\n\
             marketing: {} sent, {} passed, {} refused; the provider saw {} in the worst 1 s",
            otp.sent,
            otp.passed,
            at(50.0),
            at(99.0),
            at(100.0),
            marketing.sent,
            marketing.passed,
            marketing.refused,
            seen.max_in_any_1s
        );
        assert_eq!(marketing.failed() + otp.failed(), 0, "{:?}", marketing.other_statuses);
        stack.assert_filter_is_well().await;
        let checked = check(otp.passed == 100, || format!("OTP refused: {:?}", otp.reasons))
            .and_then(|()| report.within_contract())
            .and_then(|()| {
                check(seen.max_in_any_1s <= MARKETING_MAX_IN_1S, || format!("marketing: {seen:?}"))
            })
            .and_then(|()| check(at(99.0) < ms(20), || format!("p99 {:?}", at(99.0))))
            .and_then(|()| {
                check(marketing.passed >= 650, || "marketing lacks its 70/s".to_owned())
            });
        (noise, checked)
    })
    .await;
}
