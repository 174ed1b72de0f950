//! What can happen to one Redis. After each: the store recovers by itself, within two seconds of
//! Redis' return, and no second saw more than the limit allows, or a burst more if state was lost.

use std::{sync::Arc, time::Duration};

use decider::store::{
    Store, StoreError,
    redis::{Redis, target::Target},
};

use crate::{
    load::{Load, RECOVERY},
    plain::Plain,
    policies,
    redis_server::{RedisServer, connected, free_port},
};

async fn store(target: Target) -> Arc<Redis> {
    let account = policies::account("sample", policies::SAMPLE);
    let store = Arc::new(Redis::new(target, &[account]).unwrap());
    connected(store.as_ref()).await;
    store
}

/// A store on this Redis that is connected and under load.
async fn loaded(target: Target) -> Load {
    let load = Load::start(store(target).await, 0);
    load.until_granted(RECOVERY).await;
    load
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// On a connection that stays; words apart by spaces.
async fn tell(admin: &mut redis::aio::MultiplexedConnection, words: &str) -> String {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    let words: Vec<&str> = words.collect();
    let answer: redis::Value = command.arg(words).query_async(admin).await.unwrap();
    redis::from_redis_value(answer).unwrap_or_default()
}

#[tokio::test]
async fn a_redis_that_was_killed_and_lost_everything_costs_one_burst() {
    let server = RedisServer::start();
    let port = server.port();
    let load = loaded(server.target()).await;
    pass(300).await;
    drop(server);
    load.until_failed().await;
    let _server = RedisServer::start_on(port);
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(1);
}

#[tokio::test]
async fn a_redis_that_stood_still_goes_on_where_it_was() {
    let server = RedisServer::start();
    let load = loaded(server.target()).await;
    server.stop();
    load.until_failed().await;
    pass(700).await;
    server.go_on();
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
}

/// Busy for longer than a deadline, again and again.
#[tokio::test]
async fn a_slow_redis_costs_deadlines_and_no_excess() {
    const BUSY: &str =
        "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
        local start = now() while now() < start + 100000 do end return 1";
    let server = RedisServer::start();
    let load = loaded(server.target()).await;
    let mut raw = server.client().get_multiplexed_async_connection().await.unwrap();
    for _ in 0..8 {
        redis::cmd("EVAL").arg(BUSY).arg(0).exec_async(&mut raw).await.unwrap();
        pass(20).await;
    }
    let error = load.failure();
    assert!(matches!(error, StoreError::Late(_) | StoreError::Unreachable(_)), "{error}");
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
}

#[tokio::test]
async fn a_redis_that_became_a_replica_grants_nothing_until_it_is_a_primary_again() {
    let server = RedisServer::start();
    let load = loaded(server.target()).await;
    server.tell(&format!("REPLICAOF 127.0.0.1 {}", free_port())).await.unwrap();
    let error = load.until_failed().await;
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    pass(500).await;
    let error = load.until_failed().await.to_string();
    assert!(error.contains("replica"), "{error}");
    server.tell("REPLICAOF NO ONE").await.unwrap();
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
}

/// Its replicas are gone: it may have a successor that it does not know of.
#[tokio::test]
async fn a_primary_that_lost_its_replicas_grants_nothing_until_it_has_enough() {
    let server = RedisServer::start();
    let load = loaded(server.target()).await;
    server.tell("CONFIG SET min-replicas-to-write 1").await.unwrap();
    let error = load.until_failed().await;
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    pass(300).await;
    server.tell("CONFIG SET min-replicas-to-write 0").await.unwrap();
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
}

#[tokio::test]
async fn scripts_that_are_flushed_under_load_fail_no_call() {
    let server = RedisServer::start();
    let load = Load::start_patient(store(server.target()).await, 0);
    for _ in 0..20 {
        server.tell("SCRIPT FLUSH").await.unwrap();
        pass(30).await;
    }
    load.check_flawless();
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it_and_mends_when_it_is_right() {
    let port = free_port();
    let server = RedisServer::start_on_with(port, &["--requirepass", "right-one"]);
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{port}/0");
    let load = loaded(Target::parse(&url("right-one"), None).unwrap()).await;
    let admin = redis::Client::open(url("right-one")).unwrap();
    let mut admin = admin.get_multiplexed_async_connection().await.unwrap();
    tell(&mut admin, "CONFIG SET requirepass another").await;
    tell(&mut admin, "CLIENT KILL TYPE normal").await;
    load.until_failed().await;
    pass(500).await;
    let error = load.until_failed().await.to_string();
    assert!(error.contains("Password authentication failed"), "{error}");
    assert!(!error.contains("right-one"), "{error}");
    tell(&mut admin, "CONFIG SET requirepass right-one").await;
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
    drop(server);
}

/// What docs/store.md asks for is enough.
#[tokio::test]
async fn a_user_who_may_do_no_more_than_needed_can_work() {
    const RULES: &str = "ACL SETUSER weir on >secret ~weir:* +evalsha +script|load +time +hmget \
                         +hset +hget +hgetall +hdel +pexpire +pttl +set +exists +ping +role";
    let server = RedisServer::start();
    server.tell(RULES).await.unwrap();
    let url = format!("redis://weir:secret@127.0.0.1:{}/0", server.port());
    let store = store(Target::parse(&url, None).unwrap()).await;
    store.ask(0, &[1, 1]).await.unwrap();
    store.throttled(0, limits::Micros::SECOND, "a").await.unwrap();
    store.look(0).await.unwrap();
}

#[tokio::test]
async fn a_full_redis_grants_nothing_until_there_is_room() {
    let server = RedisServer::start_on_with(free_port(), &["--maxmemory-policy", "noeviction"]);
    let load = loaded(server.target()).await;
    server.tell("CONFIG SET maxmemory 1").await.unwrap();
    let error = load.until_failed().await;
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("OOM")), "{error}");
    pass(300).await;
    server.tell("CONFIG SET maxmemory 0").await.unwrap();
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
}

#[tokio::test]
async fn a_redis_without_a_free_connection_is_used_as_soon_as_there_is_one() {
    let server = RedisServer::start();
    let load = loaded(server.target()).await;
    let mut admin = server.client().get_multiplexed_async_connection().await.unwrap();
    tell(&mut admin, "CONFIG SET maxclients 1").await;
    tell(&mut admin, "CLIENT KILL TYPE normal").await;
    load.until_failed().await;
    pass(500).await;
    load.until_failed().await;
    let stats = tell(&mut admin, "INFO stats").await;
    assert!(!stats.contains("rejected_connections:0"), "nobody was turned away: {stats}");
    tell(&mut admin, "CONFIG SET maxclients 100").await;
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(0);
}
