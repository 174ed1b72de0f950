//! A decider with its store, on the store's clock.

use fastrand::Rng;
use limits::{
    Micros,
    decision::{Rules, State, decide},
    members::{Ask, Caller, Standing},
    policy::Limit,
    wire::{Count, DecideReply, DecideRequest},
};

use super::{Caller as From, Event, Instant, MS, SECOND, TIMEOUT, World, faults::Fault};

/// In the body of a leave.
const LEAVES: &[u8] = b"\"leaves\":true";

/// A clock that is not right.
pub struct Clock {
    /// At the run's beginning.
    start: i64,
    /// Parts in a million that it is too fast.
    drift: i64,
}

pub struct Store {
    limit: Limit,
    rules: Rules,
    state: State,
    pub clock: Clock,
    pub is_up: bool,
}

impl Clock {
    /// Up to four thousandths wrong: two of them differ by less than the hundredth that is allowed.
    pub fn new(start: i64, random: &mut Rng) -> Self {
        Self { start, drift: random.i64(-4_000..4_000) }
    }

    pub fn at(&self, now: Instant) -> Micros {
        let now = now as i64;
        Micros((self.start + now + now * self.drift / 1_000_000) as u64)
    }

    pub fn step(&mut self, by: i64) {
        self.start += by;
    }
}

impl Store {
    pub fn new(limit: &Limit, random: &mut Rng) -> Self {
        Self {
            limit: limit.clone(),
            rules: Rules::of(limit),
            state: State::default(),
            clock: Clock::new(1_760_000_000_123_456, random),
            is_up: true,
        }
    }

    pub fn loses_its_memory(&mut self) {
        self.state = State::default();
    }

    /// What `weir serve` does with a call.
    fn decide(&mut self, request: &DecideRequest, now: Micros) -> DecideReply {
        let of = |class: &String| {
            let asked = request.wants.iter().find(|count| count.class == *class);
            asked.map_or(0, |count| count.n)
        };
        let classes = self.limit.classes.iter().map(|class| class.name.clone());
        let caller = request.deadline_us.map(|deadline| Caller {
            gateway: request.gateway.clone(),
            deadline: Micros(deadline),
            leaves: request.leaves,
        });
        let wants = classes.clone().map(|class| of(&class)).collect();
        let outcome = decide(&self.rules, &mut self.state, now, &[Ask { caller, wants }]);
        let shares = || classes.clone().zip(&outcome.shares);
        let late = outcome.standings[0] == Standing::Late;
        let granted = |(class, share): (String, &limits::decision::Share)| Count {
            class,
            n: if late { 0 } else { share.granted },
        };
        DecideReply {
            now_us: now.0,
            granted: shares().map(granted).collect(),
            wait_us: shares()
                .filter(|(_, share)| !share.wait.is_zero())
                .map(|(class, share)| (class, share.wait.0))
                .collect(),
            reason: shares().filter_map(|(class, share)| Some((class, share.reason?))).collect(),
            penalty_us: 0,
            born_us: self.state.born.0,
            standing: outcome.standings[0],
        }
    }
}

impl World {
    /// Sends a worker's calls on their way.
    pub fn send(&mut self, gateway: usize, worker: usize) {
        let (calls, life) = {
            let gateway = &self.gateways[gateway];
            (gateway.hosts[worker].take_calls(), gateway.life)
        };
        for (token, body) in calls {
            let from = From { gateway, life, worker, token };
            let patience = self.random.u64(0..MS);
            self.foresee(TIMEOUT + patience, Event::Answered { to: from, body: None });
            if body.windows(LEAVES.len()).any(|part| part == LEAVES) {
                self.leaves(from, body);
                continue;
            }
            let copies = if self.random.u64(0..200) == 0 { 2 } else { 1 };
            for _ in 0..copies {
                if let Some(after) = self.fate(gateway) {
                    self.foresee(after, Event::Asked { from, body: body.clone() });
                }
            }
        }
    }

    /// The worst that can come after a leave: it is slow, requests come again at once, and then the
    /// gateway is cut off.
    fn leaves(&mut self, from: From, body: Vec<u8>) {
        let after = self.random.u64(0..TIMEOUT);
        self.foresee(after, Event::Asked { from, body });
        if self.random.bool() {
            self.foresee(MS, Event::Fault(Fault::BusyAgain(from.gateway)));
            let later = self.random.u64(100 * MS..400 * MS);
            self.foresee(later, Event::Fault(Fault::CutOff(from.gateway, 3 * SECOND)));
        }
    }

    /// How long a message is under way; `None`: for ever.
    fn fate(&mut self, gateway: usize) -> Option<Instant> {
        let stuck = |random: &mut Rng| random.u64(50 * MS..4 * SECOND);
        if self.gateways[gateway].is_cut_off {
            let arrives = self.random.bool();
            return arrives.then(|| self.random.u64(300 * MS..3 * SECOND));
        }
        match self.random.u64(0..1_000) {
            0..5 => None,
            5..15 => Some(stuck(&mut self.random)),
            15..40 => Some(self.random.u64(0..70 * MS)),
            _ => Some(self.random.u64(50..2 * MS)),
        }
    }

    pub fn asked(&mut self, from: From, body: &[u8]) {
        if !self.store.is_up {
            return;
        }
        let request: DecideRequest = serde_json::from_slice(body).unwrap();
        let now = self.store.clock.at(self.now);
        let reply = self.store.decide(&request, now);
        self.tell(|| {
            let wants: Vec<u64> = request.wants.iter().map(|count| count.n).collect();
            let granted: Vec<u64> = reply.granted.iter().map(|count| count.n).collect();
            let (standing, leaves) = (reply.standing.name(), request.leaves);
            format!(
                "store: {} wants {wants:?} gets {granted:?}, {standing}{}",
                request.gateway,
                if leaves { ", leaves" } else { "" }
            )
        });
        if let Some(after) = self.fate(from.gateway) {
            let body = serde_json::to_vec(&reply).unwrap();
            self.foresee(after, Event::Answered { to: from, body: Some(body) });
        }
    }
}
