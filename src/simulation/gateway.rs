//! A gateway: the filter's workers on one shared map, and the requests that come to them.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use fastrand::Rng;
use limits::Micros;

use super::{Caller, Event, Instant, LAST_MILE, MS, World, store::Clock};
use crate::{
    config::Config,
    exchange::State,
    gate::{Admission, SharedData, tests::Map},
    lane::Waiter,
    metrics::OfLimit,
    worker::{Host, Name, Settled, Verdict, Worker},
};

pub struct Gateway {
    pub workers: Vec<Worker>,
    /// One per worker.
    pub hosts: Vec<Envoy>,
    clock: Clock,
    /// Counts processes: what was sent to an earlier one reaches nobody.
    pub life: u32,
    pub is_cut_off: bool,
    /// Does nothing until then.
    pub stalled_until: Instant,
    /// No requests come.
    pub is_idle: bool,
    waiting: BTreeMap<u32, Instant>,
    streams: u32,
    pub granted: u64,
    pub own: u64,
    pub refused: u64,
}

/// Envoy as a worker sees it.
pub struct Envoy {
    map: Rc<Map>,
    calls: RefCell<Vec<(u32, Vec<u8>)>>,
    tokens: Cell<u32>,
}

impl Envoy {
    pub fn take_calls(&self) -> Vec<(u32, Vec<u8>)> {
        self.calls.take()
    }
}

impl SharedData for Envoy {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        self.map.get(key)
    }

    fn swap(&self, key: &str, value: &[u8], version: Option<u32>) -> bool {
        self.map.swap(key, value, version)
    }
}

impl Host for Envoy {
    fn call(&self, _path: &str, body: &[u8], _timeout: Micros) -> Option<u32> {
        let token = self.tokens.get() + 1;
        self.tokens.set(token);
        self.calls.borrow_mut().push((token, body.to_vec()));
        Some(token)
    }

    fn count(&self, _limit: usize, what: OfLimit) {
        assert_ne!(what, OfLimit::Broken, "what cannot happen, has");
    }

    fn say(&self, _text: &str) {}
}

impl Gateway {
    pub fn new(config: &Config, random: &mut Rng) -> Self {
        let mut gateway = Self {
            workers: Vec::new(),
            hosts: Vec::new(),
            clock: Clock::new(random.i64(1_000_000..1_000_000_000_000), random),
            life: 0,
            is_cut_off: false,
            stalled_until: 0,
            is_idle: false,
            waiting: BTreeMap::new(),
            streams: 0,
            granted: 0,
            own: 0,
            refused: 0,
        };
        gateway.starts(config, random);
        gateway
    }

    /// Another process takes the place of the last one.
    pub fn starts(&mut self, config: &Config, random: &mut Rng) {
        let map = Rc::new(Map::default());
        let envoy = || Envoy { map: map.clone(), calls: RefCell::default(), tokens: Cell::new(0) };
        self.hosts = (0..2).map(|_| envoy()).collect();
        let gateway = format!("gateway/{:x}", random.u64(..));
        let worker = || Worker::new(config, Name { gateway: gateway.clone(), ids: String::new() });
        self.workers = (0..2).map(|_| worker()).collect();
        self.waiting.clear();
        self.life += 1;
    }

    /// The longest-waiting stream, if it waits since before `instant` and the process has run since.
    pub fn waits_since(&self, instant: Instant) -> Option<(u32, Instant)> {
        if self.stalled_until > instant {
            return None;
        }
        let oldest = self.waiting.iter().min_by_key(|(_, since)| **since)?;
        (*oldest.1 < instant).then_some((*oldest.0, *oldest.1))
    }
}

impl World {
    /// A request comes to some worker.
    pub fn arrives(&mut self, gateway: usize) {
        // 25 a second: three gateways want two and a half times the target.
        let next = self.random.u64(MS..80 * MS);
        self.foresee(next, Event::Arrives { gateway });
        if self.gateways[gateway].is_idle || self.is_stalled(gateway) {
            return;
        }
        let (worker, class) = (self.random.usize(0..2), self.random.usize(0..2));
        let subject = &mut self.gateways[gateway];
        let now = subject.clock.at(self.now);
        match subject.workers[worker].admit(&subject.hosts[worker], 0, class, now) {
            Admission::Refuse(_) => subject.refused += 1,
            Admission::Forward => {
                subject.own += 1;
                self.goes_out(gateway, "on its own");
            }
            Admission::Ask => {
                subject.streams += 1;
                let (stream, state) = (subject.streams, Rc::new(Cell::new(State::Waiting)));
                let waiter = Waiter { stream, since: now, state };
                subject.waiting.insert(stream, self.now);
                assert!(subject.workers[worker].join(0, class, waiter).is_ok());
                let settled =
                    subject.workers[worker].ask(&subject.hosts[worker], &self.config, now);
                self.settle(gateway, worker, settled);
            }
        }
    }

    pub fn ticks(&mut self, gateway: usize, worker: usize) {
        self.foresee(50 * MS, Event::Tick { gateway, worker });
        if self.is_stalled(gateway) {
            return;
        }
        let subject = &mut self.gateways[gateway];
        let now = subject.clock.at(self.now);
        let settled = subject.workers[worker].tick(&subject.hosts[worker], &self.config, now);
        self.settle(gateway, worker, settled);
    }

    pub fn answered(&mut self, to: Caller, body: Option<&[u8]>) {
        let Caller { gateway, life, worker, token } = to;
        if self.is_stalled(gateway) {
            let after = self.gateways[gateway].stalled_until - self.now;
            let body = body.map(<[u8]>::to_vec);
            return self.foresee(after, Event::Answered { to, body });
        }
        let subject = &mut self.gateways[gateway];
        if subject.life != life {
            return;
        }
        let now = subject.clock.at(self.now);
        let (worker_, host) = (&mut subject.workers[worker], &subject.hosts[worker]);
        let settled = worker_.answered(host, &self.config, token, body, now);
        self.settle(gateway, worker, settled);
    }

    fn is_stalled(&self, gateway: usize) -> bool {
        self.now < self.gateways[gateway].stalled_until
    }

    fn settle(&mut self, gateway: usize, worker: usize, settled: Vec<Settled>) {
        self.send(gateway, worker);
        for one in settled {
            let subject = &mut self.gateways[gateway];
            assert!(subject.waiting.remove(&one.waiter.stream).is_some(), "settled twice");
            match one.verdict {
                Verdict::Granted => {
                    subject.granted += 1;
                    self.goes_out(gateway, "granted");
                }
                Verdict::Fallback => {
                    subject.own += 1;
                    self.goes_out(gateway, "on its own");
                }
                Verdict::Refused(_) => subject.refused += 1,
            }
        }
    }

    fn goes_out(&mut self, gateway: usize, how: &str) {
        let after = self.random.u64(0..LAST_MILE);
        self.provider.receives(self.now + after);
        self.tell(|| format!("gateway {gateway} sends, {how}"));
    }
}
