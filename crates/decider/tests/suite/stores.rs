//! One suite that every store passes, and what only a Redis can get wrong.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use decider::store::{Account, Store, StoreError, memory::Memory, redis::Redis, within};
use limits::{
    Micros,
    decision::{Reason, Share},
};

use crate::{
    plain::Plain,
    policies,
    redis_server::{RedisServer, connected, target, until_it_works},
};

/// The policy's: 40 ms of 50.
const DEADLINE: Duration = Duration::from_millis(40);
const HOUR: u64 = 3_600_000_000;
/// How long a run of the suite may take before waits of an hour show it.
const SLACK: u64 = 60_000_000;

fn accounts() -> Vec<Account> {
    vec![
        policies::account("first", policies::HOURLY),
        policies::account("second", policies::HOURLY),
    ]
}

fn check_share(share: Share, granted: u64, reason: Option<Reason>) {
    assert_eq!((share.granted, share.reason), (granted, reason), "{share:?}");
    if reason.is_none() {
        assert_eq!(share.wait, Micros::ZERO);
    } else {
        assert!((HOUR - SLACK..=HOUR).contains(&share.wait.0), "{share:?}");
    }
}

/// What every store promises, on two fresh limits of 1/h with a burst of 5, marketing's cap 3.
pub async fn suite(store: &dyn Store) {
    store.ping().await.unwrap();

    let nothing = store.ask(0, &[0, 0]).await.unwrap();
    check_share(nothing.shares[0], 0, None);

    let first = store.ask(0, &[1, 9]).await.unwrap();
    check_share(first.shares[0], 1, None);
    check_share(first.shares[1], 3, Some(Reason::ClassRate));
    assert_eq!(first.penalty, Micros::ZERO);
    assert!(first.now >= nothing.now);

    let second = store.ask(0, &[9, 1]).await.unwrap();
    check_share(second.shares[0], 1, Some(Reason::Rate));
    check_share(second.shares[1], 0, Some(Reason::Rate));

    let other = store.ask(1, &[5, 0]).await.unwrap();
    check_share(other.shares[0], 5, Some(Reason::Rate));

    let before = store.look(0).await.unwrap();
    assert_eq!(before.state.tats.len(), 2);
    assert_eq!(store.look(0).await.unwrap().state, before.state, "a look changes nothing");

    check_stops(store).await;
}

async fn check_stops(store: &dyn Store) {
    let (long, short) = (Micros::from_secs(1800), Micros::from_secs(60));
    assert_eq!(store.throttled(0, long, "a").await.unwrap(), long);
    let left = store.throttled(0, short, "b").await.unwrap();
    assert!(left > short && left <= long, "never shortened: {left}");
    let left = store.throttled(0, Micros::from_secs(3600), "a").await.unwrap();
    assert!(left <= long, "a report counts once: {left}");

    let stopped = store.ask(0, &[1, 1]).await.unwrap();
    assert!(stopped.penalty > Micros::ZERO && stopped.penalty <= long);
    for share in &stopped.shares {
        assert_eq!((share.granted, share.reason), (0, Some(Reason::Penalty)));
        assert_eq!(share.wait, stopped.penalty);
    }
    let free = store.ask(1, &[0, 0]).await.unwrap();
    assert_eq!(free.penalty, Micros::ZERO, "a stop holds one limit only");

    let most = store.throttled(0, Micros(u64::MAX), "c").await.unwrap();
    assert_eq!(most, Micros::from_secs(3600), "max_pause");
}

#[tokio::test]
async fn the_memory_store_passes_the_suite() {
    suite(&Memory::new(accounts())).await;
}

#[tokio::test]
async fn the_redis_store_passes_the_suite() {
    let server = RedisServer::start();
    let store = Redis::new(server.target(), &accounts()).unwrap();
    connected(&store).await;
    suite(&store).await;
    server.check_every_key_expires().await;
}

/// A cluster runs a script only if all its keys are in one slot.
#[tokio::test]
async fn all_keys_of_a_limit_share_its_hash_tag() {
    let server = RedisServer::start();
    let store = Redis::new(server.target(), &accounts()).unwrap();
    connected(&store).await;
    store.ask(0, &[1, 1]).await.unwrap();
    store.throttled(0, Micros::SECOND, "a").await.unwrap();
    for key in server.keys().await {
        assert!(key.contains("{first}"), "{key}");
    }
}

#[tokio::test]
async fn two_deciders_on_one_redis_share_the_burst() {
    let server = RedisServer::start();
    let stores: Vec<Arc<Redis>> =
        (0..2).map(|_| Arc::new(Redis::new(server.target(), &accounts()).unwrap())).collect();
    let mut asks = Vec::new();
    for store in &stores {
        connected(store.as_ref()).await;
    }
    for number in 0..20 {
        let store = Arc::clone(&stores[number % 2]);
        asks.push(tokio::spawn(async move { store.ask(0, &[1, 0]).await.unwrap() }));
    }
    let mut granted = 0;
    for ask in asks {
        granted += ask.await.unwrap().shares[0].granted;
    }
    assert_eq!(granted, 5);
}

#[tokio::test]
async fn a_redis_that_forgot_the_scripts_is_sent_them_again() {
    let server = RedisServer::start();
    let store = Redis::new(server.target(), &accounts()).unwrap();
    connected(&store).await;
    store.ask(0, &[1, 0]).await.unwrap();
    let mut raw = server.client().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut raw).await.unwrap();
    assert_eq!(store.ask(0, &[1, 0]).await.unwrap().shares[0].granted, 1);
}

/// Every call fails without waiting: all of them together take less than a deadline each.
async fn check_fail_at_once(store: &dyn Store) {
    const CALLS: u32 = 20;
    let start = Instant::now();
    for _ in 0..CALLS {
        let outcome = store.ask(0, &[1, 0]).await;
        assert!(matches!(outcome, Err(StoreError::Unreachable(_))), "{outcome:?}");
    }
    assert!(start.elapsed() < CALLS * DEADLINE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn without_a_redis_calls_fail_at_once_and_it_is_found_within_a_second_of_its_return() {
    let port = {
        let server = RedisServer::start();
        server.port()
    };
    let store = Redis::new(target(port), &accounts()).unwrap();
    check_fail_at_once(&store).await;

    let server = RedisServer::start_on(port);
    until_it_works(&store, Duration::from_secs(1)).await;
    store.ask(0, &[1, 0]).await.unwrap();

    drop(server);
    // The first to meet the dead connection, and everyone after it.
    check_fail_at_once(&store).await;
    let _server = RedisServer::start_on(port);
    until_it_works(&store, Duration::from_secs(1)).await;
    store.ask(0, &[1, 0]).await.unwrap();
}

#[tokio::test]
async fn a_silent_redis_costs_one_deadline_and_is_found_within_a_second_of_its_return() {
    let server = RedisServer::start();
    let store = Redis::new(server.target(), &accounts()).unwrap();
    connected(&store).await;
    server.stop();
    let outcome = within(DEADLINE, store.ask(0, &[1, 0])).await;
    assert!(
        matches!(outcome, Err(StoreError::Late(_) | StoreError::Unreachable(_))),
        "{outcome:?}"
    );
    // The one task that mends gets its turn before the next call.
    tokio::task::yield_now().await;
    check_fail_at_once(&store).await;
    server.go_on();
    until_it_works(&store, Duration::from_secs(1)).await;
    store.ask(0, &[1, 0]).await.unwrap();
}
