//! Redis Cluster: three primaries, and a replica where a test fails one over.
//!
//! A limit lives on one node. What happens to another node is nothing to it.

use std::{sync::Arc, time::Duration};

use decider::store::{
    Account, Store, StoreError,
    redis::{Redis, key, target::Target},
};
use redis::Value;

use crate::{
    load::{Load, RECOVERY},
    plain::Plain,
    policies,
    redis_server::{RedisServer, connected, free_port},
    stores,
};

const PATIENCE: Duration = Duration::from_secs(20);
const SLOTS: u16 = 16_384;

struct Cluster {
    /// The primaries in the order of their slots, a third each; then replicas.
    nodes: Vec<RedisServer>,
}

impl Cluster {
    async fn start() -> Self {
        let nodes: Vec<RedisServer> = (0..3).map(|_| node()).collect();
        let first = nodes[0].port();
        for (i, node) in nodes.iter().enumerate() {
            // Two that count up at the same time would take turns to win.
            node.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", i + 1)).await.unwrap();
            let (from, to) = third(i);
            let slots: Vec<String> = (from..to).map(|slot| slot.to_string()).collect();
            node.tell(&format!("CLUSTER ADDSLOTS {}", slots.join(" "))).await.unwrap();
            node.tell(&format!("CLUSTER MEET 127.0.0.1 {first}")).await.unwrap();
        }
        let cluster = Self { nodes };
        cluster
            .until(|info| info.contains("cluster_state:ok") && info.contains("cluster_size:3"))
            .await;
        cluster
    }

    /// Gives the primary `of` a replica, and waits until it is in step.
    async fn replicate(&mut self, of: usize) {
        let node = node();
        node.tell(&format!("CLUSTER MEET 127.0.0.1 {}", self.nodes[0].port())).await.unwrap();
        let id = self.id(of).await;
        self.nodes.push(node);
        let replica = self.nodes.last().unwrap();
        eventually(async || replica.tell(&format!("CLUSTER REPLICATE {id}")).await.is_ok()).await;
        eventually(async || {
            text(replica, "INFO replication").await.contains("master_link_status:up")
        })
        .await;
        // The others must know it, or they would not vote for it.
        let count = format!("cluster_known_nodes:{}", self.nodes.len());
        self.until(|info| info.contains(&count)).await;
    }

    async fn until(&self, is_so: impl Fn(&str) -> bool) {
        for node in &self.nodes {
            eventually(async || is_so(&text(node, "CLUSTER INFO").await)).await;
        }
    }

    async fn id(&self, node: usize) -> String {
        text(&self.nodes[node], "CLUSTER MYID").await
    }

    /// One node is named; the others are learnt.
    fn target(&self, seed: usize) -> Target {
        let url = format!("redis+cluster://127.0.0.1:{}", self.nodes[seed].port());
        Target::parse(&url, None).unwrap()
    }

    /// A store whose limit `i` lives on node `i`, its first answer from each seen.
    async fn store(&self, parts: &str, seed: usize) -> Arc<Redis> {
        let accounts = accounts(parts);
        let store = Arc::new(Redis::new(self.target(seed), &accounts).unwrap());
        connected(store.as_ref()).await;
        for limit in 0..accounts.len() {
            eventually(async || store.look(limit).await.is_ok()).await;
        }
        store
    }

    /// Makes `slot` of node `from` one that is on its way to node `to`, with the keys there already.
    async fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let (from_id, to_id) = (self.id(from).await, self.id(to).await);
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.tell(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")).await.unwrap();
        from.tell(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")).await.unwrap();
        let keys = from.tell(&format!("CLUSTER GETKEYSINSLOT {slot} 10")).await.unwrap();
        let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
        assert!(!keys.is_empty(), "nothing to move");
        for key in keys {
            from.tell(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port())).await.unwrap();
        }
    }

    async fn end_the_move(&self, slot: u16, to: usize) {
        let id = self.id(to).await;
        for node in [to, 0, 1, 2] {
            self.nodes[node].tell(&format!("CLUSTER SETSLOT {slot} NODE {id}")).await.unwrap();
        }
    }
}

fn node() -> RedisServer {
    let port = free_port();
    RedisServer::start_on_with(
        port,
        &[
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "800",
            // A slot that is lost is no reason to refuse the others.
            "--cluster-require-full-coverage",
            "no",
        ],
    )
}

fn third(node: usize) -> (u16, u16) {
    let bound = |i: usize| (u32::from(SLOTS) * i as u32 / 3) as u16;
    (bound(node), bound(node + 1))
}

/// Redis' own key slot: CRC-16 (XMODEM) of what the hash tag holds.
fn slot(name: &str) -> u16 {
    let crc = name.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

/// Three limits, one for each third of the slots.
fn accounts(parts: &str) -> Vec<Account> {
    let name = |node: usize| {
        let (from, to) = third(node);
        (0..).map(|i| format!("limit-{i}")).find(|name| (from..to).contains(&slot(name))).unwrap()
    };
    (0..3).map(|node| policies::account(&name(node), parts)).collect()
}

async fn text(node: &RedisServer, command: &str) -> String {
    match node.tell(command).await {
        Ok(Value::VerbatimString { text, .. }) => text,
        Ok(value) => redis::from_redis_value(value).unwrap(),
        Err(error) => error,
    }
}

async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test]
async fn the_cluster_passes_the_suite_of_all_stores() {
    let cluster = Cluster::start().await;
    let store = cluster.store(policies::HOURLY, 1).await;
    stores::suite(store.as_ref()).await;
    for (i, account) in accounts(policies::HOURLY).iter().enumerate().take(1) {
        let exists = cluster.nodes[i].tell(&format!("EXISTS {}", key(&account.name))).await;
        assert_eq!(exists, Ok(Value::Int(1)), "limit {i} is not on node {i}");
    }
}

/// ASK while the slot is on its way, MOVED when it has arrived: five an hour, all the way.
#[tokio::test]
async fn a_limit_whose_slot_moves_keeps_its_state_and_answers_throughout() {
    let cluster = Cluster::start().await;
    let store = cluster.store(policies::HOURLY, 2).await;
    let slot = slot(&accounts(policies::HOURLY)[0].name);
    let granted = async |n| store.ask(0, &[n, 0]).await.unwrap().shares[0].granted;
    assert_eq!(granted(1).await, 1);
    cluster.begin_to_move(slot, 0, 1).await;
    assert_eq!(granted(1).await, 1, "asked where it is going");
    assert_eq!(store.look(0).await.unwrap().state.tats.len(), 2);
    cluster.end_the_move(slot, 1).await;
    assert_eq!(granted(9).await, 3, "moved, and nothing forgotten or charged twice");
    assert_eq!(granted(1).await, 0);
}

#[tokio::test]
async fn a_slot_that_moves_under_load_costs_no_excess() {
    let cluster = Cluster::start().await;
    let store = cluster.store(policies::SAMPLE, 0).await;
    let slot = slot(&accounts(policies::SAMPLE)[0].name);
    let load = Load::start(store, 0);
    load.until_granted(RECOVERY).await;
    for to in [1, 2, 0] {
        let from = (to + 2) % 3;
        cluster.begin_to_move(slot, from, to).await;
        pass(200).await;
        cluster.end_the_move(slot, to).await;
        load.until_granted(RECOVERY).await;
        pass(300).await;
    }
    load.check(0);
}

#[tokio::test]
async fn a_primary_that_fails_over_costs_its_limits_a_burst_and_others_nothing() {
    let mut cluster = Cluster::start().await;
    cluster.replicate(0).await;
    let store = cluster.store(policies::SAMPLE, 1).await;
    let (hit, spared) = (Load::start(store.clone(), 0), Load::start_patient(store, 1));
    hit.until_granted(RECOVERY).await;
    spared.until_granted(RECOVERY).await;
    drop(cluster.nodes.remove(0));
    let error = hit.until_failed().await;
    assert!(!matches!(error, StoreError::Late(_)), "a dead node is known at once: {error}");
    let replica = cluster.nodes.last().unwrap();
    eventually(async || text(replica, "INFO replication").await.contains("role:master")).await;
    hit.until_granted(RECOVERY).await;
    pass(1_000).await;
    hit.check(1);
    spared.check_flawless();
}

/// Calls to the silent node cost a deadline, then nothing; calls to others never wait for it.
#[tokio::test]
async fn a_silent_primary_holds_up_no_limit_of_another_node() {
    let cluster = Cluster::start().await;
    let store = cluster.store(policies::SAMPLE, 2).await;
    let (hit, spared) = (Load::start(store.clone(), 0), Load::start_patient(store, 1));
    hit.until_granted(RECOVERY).await;
    spared.until_granted(RECOVERY).await;
    cluster.nodes[0].stop();
    hit.until_failed().await;
    pass(1_500).await;
    cluster.nodes[0].go_on();
    hit.until_granted(RECOVERY).await;
    pass(1_000).await;
    hit.check(0);
    spared.check_flawless();
}

#[tokio::test]
async fn the_node_that_the_url_names_is_needed_only_to_begin_with() {
    let mut cluster = Cluster::start().await;
    let store = cluster.store(policies::SAMPLE, 0).await;
    let spared = Load::start_patient(store.clone(), 1);
    spared.until_granted(RECOVERY).await;
    drop(cluster.nodes.remove(0));
    pass(1_500).await;
    spared.check_flawless();
    assert!(store.ping().await.is_ok());
}
