//! Whole runs on a real Redis, judged by the real judge: a few seconds each.

use super::*;
use crate::testing::{RedisServer, provider};

async fn run(design: Design, load: Load, seconds: u64, model: &str) -> Outcome {
    let redis = RedisServer::start().await;
    let provider = provider(model).await;
    let site = Site {
        redis: redis.url().to_owned(),
        judge: Judge::new(&provider),
        provider,
        gateways: Vec::new(),
    };
    let trial = Trial { design, load, lasting: Duration::from_secs(seconds), seed: 1 };
    replay(trial, &site).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_accepted_once_or_still_queued_though_many_are_refused() {
    let outcome = run(Design::CountFirst, Load::LateBurst, 3, r#"{"limit":50}"#).await;
    let accounts = outcome.accounts;
    assert!(outcome.refused > 0 && accounts.queued > 0, "{outcome:?}");
    assert!(accounts.balance(), "{accounts:?}");
    assert_eq!(accounts.made as usize, 801 + outcome.otp_waits.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_lost_shows_as_a_message_accepted_twice() {
    let outcome = run(Design::Gcra90, Load::AtOnce, 3, r#"{"lose_every":10}"#).await;
    assert!(outcome.accounts.accepted_twice > 0, "{:?}", outcome.accounts);
    assert!(!outcome.accounts.balance());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_per_second_overfills_seconds_that_are_not_its_own() {
    // A provider whose seconds begin with the counter's refuses nothing of it.
    let outcome = run(Design::CountFirst, Load::LateBurst, 3, r#"{"model":"fixed"}"#).await;
    assert!(outcome.max_in_any_1s > 130, "{}", outcome.max_in_any_1s);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sender_sends_both_classes_with_login_codes_first() {
    let outcome = run(Design::SingleSender, Load::AtOnce, 2, r#"{"limit":200}"#).await;
    assert!(outcome.accounts.balance(), "{:?}", outcome.accounts);
    assert!(outcome.otp_waits.iter().all(|otp| otp.accepted));
    assert!(outcome.marketing_sent >= 100, "{}", outcome.marketing_sent);
}
