//! A class is given to a claim *and* a certificate that may make it.

use serde_json::json;

use crate::harness::{
    Stack,
    certs::{Authority, Identity},
    files::{Template, make_roomy, policy},
};

const LOGIN: &str = "spiffe://cluster.local/ns/auth/sa/login";
const CAMPAIGNS: &str = "spiffe://cluster.local/ns/marketing/sa/campaigns";

/// What one request, with so many claims in it, counted as.
async fn class_of(
    stack: &Stack,
    authority: &Authority,
    identity: Option<&Identity>,
    headers: &[(&str, &str)],
) -> &'static str {
    let granted = async |class| stack.counted(&format!("{class}.granted")).await;
    let before = (granted("otp").await, granted("marketing").await);
    let answer = authority.call(stack.gateway(0), identity, headers).await;
    assert_eq!(answer.expect("an answer").status, 200);
    let after = (granted("otp").await, granted("marketing").await);
    match (after.0 - before.0, after.1 - before.1) {
        (1, 0) => "otp",
        (0, 1) => "marketing",
        other => panic!("one request counted as {other:?}"),
    }
}

fn stack(authority: &Authority) -> Stack {
    let mut template = Template::sample();
    template.listener()["filter_chains"][0]["transport_socket"] = authority.transport_socket();
    let policy = policy(|policy| {
        make_roomy(policy);
        policy["limits"][0]["classes"][0]["principals"] = json!([LOGIN]);
    });
    Stack::up(&["--envoy", &template.write(), "--policy", &policy])
}

const CLAIM: (&str, &str) = ("x-priority", "otp");

#[tokio::test(flavor = "multi_thread")]
async fn otp_is_only_for_the_certificate_that_may_claim_it() {
    let authority = Authority::new();
    let stack = stack(&authority);
    let (login, other) = (authority.caller(&[LOGIN]), authority.caller(&[CAMPAIGNS]));
    let longer = authority.caller(&[&format!("{LOGIN}2")]);
    let second = authority.caller(&[CAMPAIGNS, LOGIN]);

    assert_eq!(class_of(&stack, &authority, Some(&login), &[CLAIM]).await, "otp");
    assert_eq!(stack.counted("claims_refused").await, 0);

    // Who may claim it and does not is no OTP either.
    assert_eq!(class_of(&stack, &authority, Some(&login), &[]).await, "marketing");
    assert_eq!(stack.counted("claims_refused").await, 0);

    let liars = [None, Some(&other), Some(&longer), Some(&second)];
    for (count, liar) in (1..).zip(liars) {
        assert_eq!(class_of(&stack, &authority, liar, &[CLAIM]).await, "marketing", "{count}");
        assert_eq!(stack.counted("claims_refused").await, count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_says_of_its_certificate_proves_nothing() {
    let authority = Authority::new();
    let stack = stack(&authority);
    let forwarded = format!("URI={LOGIN}");
    let claims = [CLAIM, ("x-forwarded-client-cert", &forwarded), ("x-weir-class", "otp")];
    assert_eq!(class_of(&stack, &authority, None, &claims).await, "marketing");
    let other = authority.caller(&[CAMPAIGNS]);
    assert_eq!(class_of(&stack, &authority, Some(&other), &claims).await, "marketing");
    assert_eq!(stack.counted("claims_refused").await, 2);
    let seen = stack.sim.last_request().await;
    let passed_on = seen.headers.iter().any(|(name, _)| name == "x-forwarded-client-cert");
    assert!(!passed_on, "{:?}", seen.headers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_not_let_in() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let stack = stack(&authority);
    let forged = stranger.caller(&[LOGIN]);
    let answer = authority.call(stack.gateway(0), Some(&forged), &[CLAIM]).await;
    assert!(answer.is_err(), "answered {answer:?}");
    assert_eq!(stack.sim.report().await.total.arrivals, 0);
}
