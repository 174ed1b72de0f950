//! What the decider counts, in the OpenMetrics text form.
//!
//! Promise: counting costs a request one or two atomic additions: every counter is looked up once,
//! at start, and held; label values come from the policy only, so their number is bounded.

use std::time::Duration;

use limits::{Micros, decision::Reason};
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use crate::store::{Account, Decision, StoreError};

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;

/// Upper bounds in seconds: around a local script call, up to the longest deadline.
const STORE_SECONDS: [f64; 12] =
    [0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 5.0];
const REASONS: [Reason; 3] = [Reason::Rate, Reason::ClassRate, Reason::Penalty];
/// The kinds of [`StoreError`], and a queue that is full.
const FAILURES: [&str; 4] = ["unreachable", "late", "refused", "full"];

pub struct Metrics {
    registry: Registry,
    /// In the policy's order.
    pub limits: Vec<LimitMetrics>,
    /// Requests with a body that cannot be understood.
    pub bad_requests: Counter,
    pub connections: ConnectionMetrics,
}

/// A clone counts on the same ones.
#[derive(Clone, Default)]
pub struct ConnectionMetrics {
    pub open: Gauge,
    /// Closed at once, because all were taken.
    pub refused: Counter,
    /// Closed because nothing came of them.
    pub cut: Counter,
}

/// The counters of one limit; a clone counts on the same ones.
#[derive(Clone)]
pub struct LimitMetrics {
    pub asks: Counter,
    pub mismatches: Counter,
    pub throttled: Counter,
    batches: Counter,
    failed: [Counter; 4],
    store_errors: [Counter; 4],
    store_seconds: Histogram,
    penalty: Gauge,
    classes: Vec<ClassMetrics>,
}

#[derive(Clone)]
struct ClassMetrics {
    granted: Counter,
    refused: [Counter; 3],
}

/// The families, while the counters are being made.
#[derive(Default)]
struct Families {
    asks: Counters,
    mismatches: Counters,
    throttled: Counters,
    batches: Counters,
    failed: Counters,
    store_errors: Counters,
    granted: Counters,
    refused: Counters,
    penalty: Family<Labels, Gauge>,
}

impl Metrics {
    pub fn new(accounts: &[Account], policy_hash: &str) -> Self {
        let mut registry = Registry::with_prefix("weir");
        let families = Families::default();
        families.register(&mut registry);
        let store_seconds = Histogram::new(STORE_SECONDS);
        registry.register_with_unit(
            "store_call",
            "Time of one call to the store",
            Unit::Seconds,
            store_seconds.clone(),
        );
        let bad_requests = Counter::default();
        registry.register(
            "bad_requests",
            "Requests that could not be understood",
            bad_requests.clone(),
        );
        let connections = ConnectionMetrics::default();
        connections.register(&mut registry);
        let running = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("policy", policy_hash.to_owned()),
        ]);
        registry.register("running", "Program version and policy hash", running);
        let limits = accounts.iter().map(|account| families.of(account, &store_seconds)).collect();
        Self { registry, limits, bad_requests, connections }
    }

    /// All of it, as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl ConnectionMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Connections that are open", self.open.clone());
        let (refused, cut) = (self.refused.clone(), self.cut.clone());
        registry.register(
            "connections_refused",
            "Connections closed because all were taken",
            refused,
        );
        registry.register(
            "connections_cut",
            "Connections closed because nothing came of them",
            cut,
        );
    }
}

impl Families {
    fn register(&self, registry: &mut Registry) {
        let counters = [
            ("asks", "Asks of gateways", &self.asks),
            ("asks_failed", "Asks that got no decision, by kind", &self.failed),
            ("granted", "Requests granted", &self.granted),
            ("refused", "Requests refused, by what held them back", &self.refused),
            ("batches", "Calls to the store for asks", &self.batches),
            ("store_errors", "Calls to the store that failed, by kind", &self.store_errors),
            ("policy_mismatches", "Asks of gateways that run another policy", &self.mismatches),
            ("throttled_reports", "Reports that the provider throttled us", &self.throttled),
        ];
        for (name, help, family) in counters {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "penalty_us",
            "What was left of the provider's stop when last seen, in microseconds",
            self.penalty.clone(),
        );
    }

    fn of(&self, account: &Account, store_seconds: &Histogram) -> LimitMetrics {
        let limit = || vec![("limit", account.name.clone())];
        let one = |family: &Counters| family.get_or_create(&limit()).clone();
        let by_kind = |family: &Counters| {
            FAILURES.map(|kind| {
                let labels = [limit(), vec![("kind", kind.to_owned())]].concat();
                family.get_or_create(&labels).clone()
            })
        };
        let class = |name: &String| {
            let class = [limit(), vec![("class", name.clone())]].concat();
            ClassMetrics {
                granted: self.granted.get_or_create(&class).clone(),
                refused: REASONS.map(|reason| {
                    let labels = [class.clone(), vec![("reason", reason.name().to_owned())]];
                    self.refused.get_or_create(&labels.concat()).clone()
                }),
            }
        };
        LimitMetrics {
            asks: one(&self.asks),
            mismatches: one(&self.mismatches),
            throttled: one(&self.throttled),
            batches: one(&self.batches),
            failed: by_kind(&self.failed),
            store_errors: by_kind(&self.store_errors),
            store_seconds: store_seconds.clone(),
            penalty: self.penalty.get_or_create(&limit()).clone(),
            classes: account.classes.iter().map(class).collect(),
        }
    }
}

impl LimitMetrics {
    /// A batch's call to the store has ended, after so long.
    pub fn called(&self, took: Duration) {
        self.batches.inc();
        self.store_seconds.observe(took.as_secs_f64());
    }

    /// A call to the store failed.
    pub fn store_failed(&self, error: &StoreError) {
        count(&self.store_errors, error.kind());
    }

    /// An ask ended without a decision.
    pub fn failed(&self, kind: &str) {
        count(&self.failed, kind);
    }

    /// What is left of the provider's stop.
    pub fn penalty(&self, left: Micros) {
        self.penalty.set(i64::try_from(left.0).unwrap_or(i64::MAX));
    }

    pub fn decided(&self, wants: &[u64], decision: &Decision) {
        self.penalty(decision.penalty);
        for ((class, share), want) in self.classes.iter().zip(&decision.shares).zip(wants) {
            class.granted.inc_by(share.granted);
            let refused = want.saturating_sub(share.granted);
            if let Some(reason) = share.reason.filter(|_| refused > 0) {
                class.refused[reason as usize].inc_by(refused);
            }
        }
    }
}

fn count(counters: &[Counter; 4], kind: &str) {
    if let Some(place) = FAILURES.iter().position(|known| *known == kind) {
        counters[place].inc();
    }
}
