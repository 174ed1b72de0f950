//! Gateways, a store and a provider in one process, on clocks of their own, under every fault we can
//! think of. A run is a function of its seed.
//!
//! What is real here: the filter's [`Worker`]s with their gates, the record in shared data, the wire
//! and the store's decision. What is made up: time, the network, and who dies when. The provider
//! only counts what arrives, in every window, and knows nothing of limits.
//!
//! `WEIR_SEED=n` replays one run and tells what happens in it; `WEIR_SEEDS=n` runs so many.

mod faults;
mod gateway;
mod provider;
mod store;

use std::{collections::BTreeMap, thread};

use fastrand::Rng;
use serde_json::{Value, json};

use self::{faults::Fault, gateway::Gateway, provider::Provider, store::Store};
use crate::{config::Config, sample};

/// How many seeds are run; `WEIR_SEEDS` says otherwise.
const SEEDS: u64 = 10_000;

/// µs since the run began, on no clock that anyone in it can read.
type Instant = u64;

const GATEWAYS: usize = 3;
const MS: Instant = 1_000;
const SECOND: Instant = 1_000 * MS;
/// Faults come until then; after it everything heals.
const TROUBLED: Instant = 9 * SECOND;
const END: Instant = 11 * SECOND;
/// The policy's.
const TIMEOUT: Instant = 50 * MS;
/// From a gateway to the provider. With the time-out, in which an answer may be under way, it makes
/// the policy's `path_jitter`.
const LAST_MILE: Instant = 5 * MS;
/// One request for each gateway over the worst case of the target: nothing to spare.
const CONTRACT: usize = 38;

fn policy() -> Value {
    let mut policy = sample::policy();
    policy["gateways"]["max"] = json!(GATEWAYS);
    policy["path_jitter"] = json!("55ms");
    let limit = &mut policy["limits"][0];
    limit["contract"] = json!([{"requests": CONTRACT, "per": "1s"}]);
    limit["rates"] = json!([{"target": 30, "per": "1s", "burst": 4}]);
    limit["classes"][1]["rates"] = json!([{"target": 24, "per": "1s", "burst": 4}]);
    limit["fallback"] = json!({"lease": "700ms", "forget_after": "3s"});
    policy
}

/// What happens next to whom.
enum Event {
    Arrives {
        gateway: usize,
    },
    Tick {
        gateway: usize,
        worker: usize,
    },
    /// A call has reached the store.
    Asked {
        from: Caller,
        body: Vec<u8>,
    },
    /// A call is over for the one who made it.
    Answered {
        to: Caller,
        body: Option<Vec<u8>>,
    },
    Fault(Fault),
}

/// A call of a worker of one life of a gateway.
#[derive(Debug, Clone, Copy)]
struct Caller {
    gateway: usize,
    life: u32,
    worker: usize,
    token: u32,
}

struct World {
    random: Rng,
    now: Instant,
    /// By time, and by the order in which they were foreseen.
    events: BTreeMap<(Instant, u64), Event>,
    foreseen: u64,
    config: Config,
    gateways: Vec<Gateway>,
    store: Store,
    provider: Provider,
    tells: bool,
}

/// What a run has seen: one in which nothing went, or nothing failed, proves nothing.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    granted: u64,
    own: u64,
    refused: u64,
    most_in_a_second: usize,
}

impl World {
    fn new(seed: u64, tells: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let configuration = json!({"decider": {"cluster": "weir"}, "policy": policy()});
        let config = Config::parse(configuration.to_string().as_bytes()).unwrap();
        let store = Store::new(&config.policy.limits[0], &mut random);
        let gateways = (0..GATEWAYS).map(|_| Gateway::new(&config, &mut random)).collect();
        let mut world = Self {
            random,
            now: 0,
            events: BTreeMap::new(),
            foreseen: 0,
            config,
            gateways,
            store,
            provider: Provider::default(),
            tells,
        };
        for gateway in 0..GATEWAYS {
            world.foresee(1, Event::Arrives { gateway });
            for worker in 0..world.gateways[gateway].workers.len() {
                let after = world.random.u64(0..50 * MS);
                world.foresee(after, Event::Tick { gateway, worker });
            }
        }
        world.foresee_faults();
        world
    }

    fn foresee(&mut self, after: Instant, event: Event) {
        self.foreseen += 1;
        self.events.insert((self.now + after, self.foreseen), event);
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>9.3} ms  {}", self.now as f64 / 1_000.0, text());
        }
    }

    fn run(mut self) -> Result<Seen, String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > END {
                break;
            }
            self.now = at;
            match event {
                Event::Arrives { gateway } => self.arrives(gateway),
                Event::Tick { gateway, worker } => self.ticks(gateway, worker),
                Event::Asked { from, body } => self.asked(from, &body),
                Event::Answered { to, body } => self.answered(to, body.as_deref()),
                Event::Fault(fault) => self.befalls(fault),
            }
        }
        let mut seen = Seen { most_in_a_second: self.provider.most_in(SECOND), ..Seen::default() };
        for gateway in &self.gateways {
            seen.granted += gateway.granted;
            seen.own += gateway.own;
            seen.refused += gateway.refused;
            if let Some((stream, since)) = gateway.waits_since(self.now - SECOND) {
                return Err(format!("stream {stream} waits since {since} µs"));
            }
        }
        match seen.most_in_a_second {
            most if most > CONTRACT => Err(format!("{most} in a second, sold are {CONTRACT}")),
            _ => Ok(seen),
        }
    }
}

/// Runs the seeds on all processors; the first that fails, or what all have seen together.
fn all(seeds: std::ops::Range<u64>) -> Result<Seen, String> {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let run = |seed: u64| {
        let replay = || format!("seed {seed} (WEIR_SEED={seed} replays it): ");
        World::new(seed, false).run().map_err(|why| replay() + &why)
    };
    let sum = |sum: Seen, seen: Result<Seen, String>| seen.map(|seen| sum.plus(seen));
    let part = |thread: u64| {
        let mut mine = seeds.clone().filter(|seed| seed % threads == thread);
        mine.try_fold(Seen::default(), |so_far, seed| sum(so_far, run(seed)))
    };
    thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        let mut results = parts.into_iter().map(|part| part.join().unwrap());
        results.try_fold(Seen::default(), sum)
    })
}

impl Seen {
    fn plus(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            own: self.own + other.own,
            refused: self.refused + other.refused,
            most_in_a_second: self.most_in_a_second.max(other.most_in_a_second),
        }
    }
}

#[test]
fn the_contract_holds_whatever_fails() {
    if let Ok(seed) = std::env::var("WEIR_SEED") {
        let seed = seed.parse().expect("WEIR_SEED is a whole number");
        println!("{:?}", World::new(seed, true).run().unwrap());
        return;
    }
    let seeds = std::env::var("WEIR_SEEDS");
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().expect("WEIR_SEEDS is a whole number"));
    let seen = all(0..seeds).unwrap_or_else(|why| panic!("{why}"));
    println!("{seen:?}");
    // A third of what the target allows, in a world where half of everything is broken.
    let allowed = seeds * 30 * END / SECOND;
    assert!(seen.granted + seen.own > allowed / 3, "{seen:?}");
    assert!(seen.own > allowed / 20, "{seen:?}");
}
