//! Many requests at twice the capacity while everything around the gateways fails in turn: every caller
//! gets an answer, and nobody's memory grows.
//!
//! `WEIR_LOAD_REQUESTS=50000 cargo test --release --test e2e -- load` runs the whole; without it, enough
//! to meet each fault twice. Figures are left in `target/load/report.json`.

use std::time::Duration;

use lab::{Arrivals, Run, Stream, Summary, percentile};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::harness::{
    Stack,
    files::policy,
    ms,
    network::{Fault, Network},
    noise::{Noise, answered, check, on_a_calm_machine, send_beside_control, template_with_noop},
    stack::{Process, root},
};

const CONTRACT_PER_S: u32 = 450;
const TARGET_PER_S: u32 = 400;
const PER_S: f64 = 800.0;
const REQUESTS: f64 = 20_000.0;
const STRIKE: Duration = ms(600);
const CALM: Duration = ms(600);
const LOOK_EVERY: Duration = ms(250);
/// Between the middle of a run and its end.
const GROWTH_MAX: f64 = 1.1;
/// Pages that an allocator keeps, whatever the load.
const GROWTH_FLOOR_KB: u64 = 4_096;

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Network(Fault),
    DeciderStopped,
    RedisStopped,
    RedisKilled,
    ProviderSaysNo,
}

const TROUBLES: [Trouble; 10] = [
    Trouble::Network(Fault::Delay(ms(120))),
    Trouble::Network(Fault::BlackHole),
    Trouble::RedisStopped,
    Trouble::Network(Fault::Reset),
    Trouble::Network(Fault::HalfOpen),
    Trouble::DeciderStopped,
    Trouble::Network(Fault::Garbage),
    Trouble::RedisKilled,
    Trouble::Network(Fault::SlowBody),
    Trouble::ProviderSaysNo,
];

/// A gateway's side and a decider's, with a network between.
struct Field {
    near: Stack,
    far: Stack,
    network: Network,
}

impl Field {
    async fn lay() -> Self {
        let policy = policy(|policy| {
            let limit = &mut policy["limits"][0];
            limit["contract"] = json!([{ "requests": CONTRACT_PER_S, "per": "1s" }]);
            limit["rates"] = json!([{ "target": TARGET_PER_S, "per": "1s", "burst": 5 }]);
            limit["classes"][1]["rates"] = json!([{ "target": 300, "per": "1s", "burst": 5 }]);
            limit["fallback"] = json!({ "lease": "600ms", "forget_after": "1m" });
        });
        let far = Stack::up(&["--redis", "--policy", &policy]);
        let network = Network::to(&far.ready.deciders[0]).await;
        let template = template_with_noop().write();
        let gateways = ["--gateways", "2", "--decider", &network.address, "--envoy", &template];
        let near = Stack::up(&[&gateways[..], &["--policy", &policy]].concat());
        near.sim.set(json!({ "model": "rolling", "limit": CONTRACT_PER_S })).await;
        Self { near, far, network }
    }

    /// One trouble after the other, for ever; counts them.
    async fn suffer_all(&self, count: &mut usize) {
        let mut redis = None;
        for trouble in TROUBLES.into_iter().cycle() {
            tokio::time::sleep(CALM).await;
            self.suffer(trouble, &mut redis).await;
            *count += 1;
        }
    }

    /// `redis` is the one that runs since the first was killed.
    async fn suffer(&self, trouble: Trouble, redis: &mut Option<Process>) {
        let to_redis = |redis: &Option<Process>, signal| match redis {
            Some(successor) => successor.signal(signal),
            None => self.far.signal("redis", signal),
        };
        match trouble {
            Trouble::Network(fault) => self.network.set(fault),
            Trouble::DeciderStopped => self.far.signal("decider-0", libc::SIGSTOP),
            Trouble::RedisStopped => to_redis(redis, libc::SIGSTOP),
            Trouble::RedisKilled => to_redis(redis, libc::SIGKILL),
            Trouble::ProviderSaysNo => {
                self.near.sim.force(1, 429, &[("retry-after", "1")]).await;
            }
        }
        tokio::time::sleep(STRIKE).await;
        match trouble {
            Trouble::Network(_) => self.network.set(Fault::None),
            Trouble::DeciderStopped => self.far.signal("decider-0", libc::SIGCONT),
            Trouble::RedisStopped => to_redis(redis, libc::SIGCONT),
            Trouble::RedisKilled => *redis = Some(self.far.start_again("redis")),
            Trouble::ProviderSaysNo => {}
        }
    }

    fn watched(&self) -> [(&'static str, i32); 3] {
        let near = ["gateway-0", "gateway-1"].map(|name| (name, self.near.pid(name)));
        [near[0], near[1], ("decider-0", self.far.pid("decider-0"))]
    }
}

/// Anonymous resident memory in kB over time; empty where there is no `/proc`.
#[derive(Default)]
struct Memory(Vec<u64>);

impl Memory {
    fn look(&mut self, pid: i32) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kb = line.map(|rest| rest.trim().trim_end_matches(" kB").parse());
        self.0.extend(kb.and_then(Result::<u64, _>::ok));
    }

    /// The middle value of the samples from `from` to `to`, in hundredths of the run.
    fn median(&self, from: usize, to: usize) -> u64 {
        let at = |percent| self.0.len() * percent / 100;
        let mut part = self.0[at(from)..at(to)].to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or_default()
    }

    fn middle_and_end(&self) -> (u64, u64) {
        (self.median(35, 55), self.median(80, 100))
    }

    fn is_flat(&self) -> bool {
        let (middle, end) = self.middle_and_end();
        end <= middle + GROWTH_FLOOR_KB.max((middle as f64 * (GROWTH_MAX - 1.0)) as u64)
    }
}

async fn watch(processes: [(&'static str, i32); 3], memories: &mut [Memory; 3]) {
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        for ((_, pid), memory) in processes.iter().zip(memories.iter_mut()) {
            memory.look(*pid);
        }
    }
}

fn requests() -> f64 {
    let text = std::env::var("WEIR_LOAD_REQUESTS").ok();
    text.map_or(REQUESTS, |text| text.parse().expect("WEIR_LOAD_REQUESTS is a number"))
}

fn write(report: &Value) {
    let dir = root().join("target/load");
    std::fs::create_dir_all(&dir).expect("target/load can be made");
    let text = serde_json::to_string_pretty(report).expect("a report");
    std::fs::write(dir.join("report.json"), text).expect("the report can be written");
}

fn figures(run: &Run, noise: &Noise, troubles: usize, seconds: f64) -> Value {
    let summary = Summary::of(run.sent.iter());
    let mut took: Vec<Duration> = run.sent.iter().map(|sent| sent.took).collect();
    took.sort_unstable();
    let ms = |percent| percentile(&took, percent).unwrap_or_default().as_secs_f64() * 1e3;
    json!({
        "requests": summary.sent, "per_s": PER_S, "target_per_s": TARGET_PER_S,
        "seconds": seconds, "troubles": troubles,
        "passed": summary.passed, "refused": summary.refused,
        "unanswered": summary.failed() + summary.not_sent,
        "answered_within_ms": { "p50": ms(50.0), "p99": ms(99.0), "all": ms(100.0) },
        "control_longest_ms": noise.longest().as_secs_f64() * 1e3,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn at_twice_the_capacity_with_faults_throughout_all_are_answered_and_memory_is_flat() {
    on_a_calm_machine(async || {
        let field = Field::lay().await;
        let lasting = Duration::from_secs_f64(requests() / PER_S);
        let even = |per_s| Arrivals::Even { per_s, lasting };
        let streams = [("otp", PER_S * 0.4), ("marketing", PER_S * 0.6)]
            .map(|(class, per_s)| Stream::new(class, even(per_s)));
        let (mut troubles, mut memories) = (0, <[Memory; 3]>::default());
        let (start, watched) = (Instant::now(), field.watched());
        let (run, noise) = tokio::select! {
            done = send_beside_control(&field.near, &streams) => done,
            () = field.suffer_all(&mut troubles) => unreachable!("troubles never end"),
            () = watch(watched, &mut memories) => unreachable!("nor does the watch"),
        };
        let mut report = figures(&run, &noise, troubles, start.elapsed().as_secs_f64());
        let of_memory = watched.iter().zip(&memories).map(|((name, _), memory)| {
            let (middle, end) = memory.middle_and_end();
            json!({ "process": name, "middle_kb": middle, "end_kb": end, "all_kb": memory.0 })
        });
        report["memory"] = of_memory.collect();
        write(&report);
        report["memory"].as_array_mut().expect("a list").iter_mut().for_each(|one| {
            one["all_kb"].take();
        });
        println!("{report}");
        field.near.assert_filter_is_well().await;
        let seen = field.near.sim.report().await.total;
        let most = u64::from(CONTRACT_PER_S);
        let checked = answered(&run, &noise)
            .and_then(|()| check(seen.max_in_any_1s <= most, || format!("{seen:?}")))
            .and_then(|()| check(troubles >= TROUBLES.len(), || format!("{troubles} troubles")))
            .and_then(|()| check(memories.iter().all(Memory::is_flat), || report.to_string()));
        (noise, checked)
    })
    .await;
}

#[test]
fn a_memory_that_grows_is_noticed_and_one_that_settles_is_not() {
    let after = |kb: fn(u64) -> u64| Memory((0..100).map(kb).collect());
    assert!(after(|at| 50_000 + at % 7 * 100).is_flat());
    assert!(after(|at| 50_000 + at.min(30) * 1_000).is_flat(), "it grew to its size");
    assert!(!after(|at| 50_000 + at * 200).is_flat());
    assert!(!after(|at| 2_000 + at * 100).is_flat());
}
