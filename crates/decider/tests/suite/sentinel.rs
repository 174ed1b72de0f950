//! The primary that Sentinels name: found, followed when it changes, and no replica trusted.

use std::{fs, sync::Arc, time::Duration};

use decider::store::redis::{Redis, target::Target};

use crate::{
    load::{Load, RECOVERY},
    policies,
    redis_server::{RedisServer, connected, directory, free_port},
};

const PATIENCE: Duration = Duration::from_secs(20);
const PASSWORD: &str = "for-redis";
const SENTINELS_PASSWORD: &str = "for-sentinels";

struct Watched {
    primary: RedisServer,
    replica: RedisServer,
    sentinels: Vec<RedisServer>,
}

impl Watched {
    async fn start() -> Self {
        let login = ["--requirepass", PASSWORD, "--masterauth", PASSWORD];
        let primary = RedisServer::start_on_with(free_port(), &login);
        let of = format!("127.0.0.1 {}", primary.port());
        let options = [&login[..], &["--replicaof", &of]].concat();
        let replica = RedisServer::start_on_with(free_port(), &options);
        let sentinels = (0..3).map(|_| sentinel(primary.port())).collect();
        let watched = Self { primary, replica, sentinels };
        // Without these a failover has nobody to choose, or nobody to agree.
        for sentinel in &watched.sentinels {
            for field in ["num-slaves 1", "num-other-sentinels 2"] {
                watched.until(sentinel, field).await;
            }
        }
        watched
    }

    /// Until a Sentinel says this of the primary.
    async fn until(&self, sentinel: &RedisServer, field: &str) {
        let (name, value) = field.split_once(' ').unwrap();
        let start = std::time::Instant::now();
        loop {
            let mut raw = raw(sentinel.port(), SENTINELS_PASSWORD).await;
            let mut command = redis::cmd("SENTINEL");
            let said: std::collections::HashMap<String, String> =
                command.arg("MASTER").arg("main").query_async(&mut raw).await.unwrap();
            if said[name] == value {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no {field} within {PATIENCE:?}: {said:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn url(sentinels: &[RedisServer]) -> String {
    let hosts: Vec<String> =
        sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    let hosts = hosts.join(",");
    format!("redis+sentinel://:{PASSWORD}@{hosts}/main?sentinel_password={SENTINELS_PASSWORD}")
}

async fn store(url: &str) -> Arc<Redis> {
    let account = policies::account("sample", policies::SAMPLE);
    let store = Arc::new(Redis::new(Target::parse(url, None).unwrap(), &[account]).unwrap());
    connected(store.as_ref()).await;
    store
}

fn sentinel(primary: u16) -> RedisServer {
    let port = free_port();
    let file = directory(port).join("sentinel.conf");
    let configuration = format!(
        "port {port}
requirepass {SENTINELS_PASSWORD}
sentinel sentinel-pass {SENTINELS_PASSWORD}
sentinel monitor main 127.0.0.1 {primary} 2
sentinel auth-pass main {PASSWORD}
sentinel down-after-milliseconds main 500
sentinel failover-timeout main 2000
"
    );
    fs::write(&file, configuration).unwrap();
    RedisServer::spawn(port, &[&file.display().to_string(), "--sentinel"])
}

async fn raw(port: u16, password: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(format!("redis://:{password}@127.0.0.1:{port}/0")).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test]
async fn a_failover_costs_a_burst_and_the_new_primary_is_found() {
    let watched = Watched::start().await;
    let load = Load::start(store(&url(&watched.sentinels)).await, 0);
    load.until_granted(RECOVERY).await;
    let new = watched.replica.port();
    watched.primary.stop();
    load.until_failed().await;
    for sentinel in &watched.sentinels {
        watched.until(sentinel, &format!("port {new}")).await;
    }
    load.until_granted(RECOVERY).await;
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut raw(new, PASSWORD).await).await.unwrap();
    assert_eq!(keys, 1, "it is the new one that is used");

    // The old one comes back, believes that it is a primary, and is put right: nothing is granted
    // there, because nobody asks it.
    watched.primary.go_on();
    pass(1_000).await;
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(1);
}

#[tokio::test]
async fn a_sentinel_that_is_dead_or_silent_is_passed_over() {
    let Watched { primary, replica: _replica, mut sentinels } = Watched::start().await;
    let all = url(&sentinels);
    drop(sentinels.remove(0));
    sentinels[0].stop();
    let load = Load::start(store(&all).await, 0);
    load.until_granted(RECOVERY).await;
    // Two of three cannot agree on another primary: this one has to come back.
    let port = primary.port();
    drop(primary);
    load.until_failed().await;
    let _primary = RedisServer::start_on_with(port, &["--requirepass", PASSWORD]);
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(1);
}

/// As by hand before maintenance: the old primary is alive all the time.
#[tokio::test]
async fn a_failover_that_was_asked_for_leaves_no_call_to_a_replica() {
    let watched = Watched::start().await;
    let load = Load::start(store(&url(&watched.sentinels)).await, 0);
    load.until_granted(RECOVERY).await;
    let new = watched.replica.port();
    let mut sentinel = raw(watched.sentinels[1].port(), SENTINELS_PASSWORD).await;
    let mut command = redis::cmd("SENTINEL");
    command.arg("FAILOVER").arg("main").exec_async(&mut sentinel).await.unwrap();
    for sentinel in &watched.sentinels {
        watched.until(sentinel, &format!("port {new}")).await;
    }
    // The old one is told within its failover: then its clients are sent away, or hear READONLY.
    let mut old = raw(watched.primary.port(), PASSWORD).await;
    let start = std::time::Instant::now();
    loop {
        let role: String =
            redis::cmd("INFO").arg("replication").query_async(&mut old).await.unwrap_or_default();
        if role.contains("role:slave") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "still a primary: {role}");
        pass(20).await;
        old = raw(watched.primary.port(), PASSWORD).await;
    }
    load.until_granted(RECOVERY).await;
    pass(1_000).await;
    load.check(1);
}
