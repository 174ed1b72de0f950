//! Every way in which two gateways and a store can go on from the start, for some ticks: no share of
//! the target is ever used by two.
//!
//! In each tick a gateway may ask, probe or leave; its call is answered, carried out unheard, carried
//! out late, or never; the store's clock is set, its memory lost; of all that goes wrong, so many in a
//! run. The types under test are the ones that filter and store use.

use limits::{
    Micros,
    lease::{Call, Lease, Right},
    members::{Ask, Caller, Members, Standing, Terms},
};
use stateright::{Checker, Model, Property};

const TICK: Micros = Micros::from_millis(100);
/// So short that a share begins four ticks after an ask that was answered, and ends at the fifth.
const TERMS: Terms = Terms {
    lease: TICK,
    forget_after: Micros::from_millis(500),
    gateways: 2,
    timeout: Micros::from_millis(50),
};
/// The run ends then.
const TICKS: u64 = 5;
/// So many things go wrong at most: calls, leaves, late arrivals, the store.
const FAULTS: u8 = 3;
const NAMES: [&str; 2] = ["a", "b"];
/// Where the clocks begin: no instant is zero, which means never.
const GATEWAYS_EPOCH: Micros = Micros::from_secs(1_000);
const STORES_EPOCH: Micros = Micros::from_secs(1_000_000);
/// The store's clock may go back so far.
const BEFORE: u64 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    ticks: u64,
    /// Of the store's clock, in ticks.
    step: i64,
    /// What may still go wrong.
    faults: u8,
    members: Members,
    gateways: [Gateway; 2],
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Gateway {
    lease: Lease,
    /// It has done something in this tick.
    acted: bool,
    /// It waits in vain for a call that was sent then.
    waits_since: Option<u64>,
    /// A call that may still be carried out.
    stuck: Option<Sent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sent {
    deadline: Micros,
    leaves: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Carried out, but the answer is lost.
    Unheard,
    /// It may be carried out at any time, or never.
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    Ask(usize, Fate),
    Leave(usize, Fate),
    /// A call that was stuck is carried out.
    Arrives(usize),
    /// Asks for nothing, and is answered.
    Probe(usize),
    StepClock(i64),
    LoseMemory,
}

struct Leases;

impl World {
    fn now(&self) -> Micros {
        GATEWAYS_EPOCH.plus(TICK.times(self.ticks))
    }

    fn store_now(&self) -> Micros {
        let ticks = (BEFORE + self.ticks).saturating_add_signed(self.step);
        STORES_EPOCH.plus(TICK.times(ticks))
    }

    fn carry_out(&mut self, gateway: usize, sent: Sent) -> Standing {
        let caller = Caller {
            gateway: NAMES[gateway].to_owned(),
            deadline: sent.deadline,
            leaves: sent.leaves,
        };
        let ask = Ask { caller: Some(caller), wants: vec![] };
        self.members.settle(&TERMS, self.store_now(), &[ask]).0[0]
    }

    /// A call that waited for the time-out is given up.
    fn tick(&mut self) {
        self.ticks += 1;
        let (now, ticks) = (self.now(), self.ticks);
        for gateway in &mut self.gateways {
            gateway.acted = false;
            if gateway
                .waits_since
                .take_if(|since| TICK.times(ticks - *since) > TERMS.timeout)
                .is_some()
            {
                gateway.lease.failed(Call::Ask, now);
            }
        }
    }

    fn send(&mut self, gateway: usize, leaves: bool, fate: Fate) -> Option<()> {
        let (now, ticks) = (self.now(), self.ticks);
        let subject = &mut self.gateways[gateway];
        subject.acted = true;
        let lease = &mut subject.lease;
        let deadline = if leaves { lease.leave(&TERMS, now) } else { lease.renew(&TERMS, now) }?;
        let sent = Sent { deadline, leaves };
        if fate != Fate::Answered {
            subject.waits_since = Some(ticks);
        }
        if fate == Fate::Stuck {
            subject.stuck = Some(sent);
            return Some(());
        }
        let standing = self.carry_out(gateway, sent);
        if fate == Fate::Answered {
            let store_now = self.store_now();
            let lease = &mut self.gateways[gateway].lease;
            lease.answered(store_now, now);
            if !leaves && standing != Standing::Late {
                lease.renewed(&TERMS, now, standing == Standing::Member);
            }
        }
        Some(())
    }

    /// Shares of the target that gateways send on.
    fn used(&self) -> u32 {
        let uses = |gateway: &&Gateway| {
            !gateway.lease.asks() && gateway.lease.right(self.now()) == Right::Share
        };
        self.gateways.iter().filter(uses).count() as u32
    }

    /// Shares that the store keeps free, if it is asked now.
    fn kept_free(&self) -> u32 {
        let (_, part) = self.members.clone().settle(&TERMS, self.store_now(), &[]);
        part.whole - part.left
    }
}

impl Model for Leases {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut lease = Lease::default();
        let store_now = STORES_EPOCH.plus(TICK.times(BEFORE));
        lease.answered(store_now, GATEWAYS_EPOCH);
        let gateway = Gateway { lease, ..Gateway::default() };
        // A store that has known for long that nobody is missing.
        let known = Members { clock: store_now, seen: store_now, ..Members::default() };
        let world = World {
            ticks: 0,
            step: 0,
            faults: FAULTS,
            members: known,
            gateways: [gateway.clone(), gateway],
        };
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.ticks < TICKS {
            actions.push(Action::Tick);
        }
        let more = world.faults > 0;
        let fates = [Fate::Answered, Fate::Unheard, Fate::Stuck];
        let fates = &fates[..if more { 3 } else { 1 }];
        for (index, gateway) in world.gateways.iter().enumerate() {
            if more && gateway.stuck.is_some() {
                actions.push(Action::Arrives(index));
            }
            if gateway.acted || gateway.waits_since.is_some() {
                continue;
            }
            if !gateway.lease.asks() {
                actions.push(Action::Probe(index));
                continue;
            }
            actions.extend(fates.iter().map(|fate| Action::Ask(index, *fate)));
            if more && world.now() < gateway.lease.counted_until {
                actions.extend(fates.iter().map(|fate| Action::Leave(index, *fate)));
            }
        }
        if more {
            actions.push(Action::LoseMemory);
            // Back by more than any silence here: one that a silence made up for would go unseen.
            actions.extend([-50, 20].map(Action::StepClock));
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let is_fault =
            !matches!(action, Action::Tick | Action::Probe(_) | Action::Ask(_, Fate::Answered));
        world.faults -= u8::from(is_fault);
        match action {
            Action::Tick => world.tick(),
            Action::Ask(gateway, fate) => world.send(gateway, false, fate)?,
            Action::Leave(gateway, fate) => world.send(gateway, true, fate)?,
            Action::Arrives(gateway) => {
                let stuck = world.gateways[gateway].stuck.take()?;
                world.carry_out(gateway, stuck);
            }
            Action::Probe(gateway) => {
                let (now, store_now) = (world.now(), world.store_now());
                let subject = &mut world.gateways[gateway];
                subject.acted = true;
                subject.lease.answered(store_now, now);
            }
            Action::StepClock(by) => world.step += by,
            Action::LoseMemory => world.members = Members::default(),
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // Of whoever can ask: one that sends on its share does not.
            Property::always("no share is used by two", |_, world: &World| {
                world.used() <= world.kept_free() || world.used() == TERMS.gateways
            }),
            Property::sometimes("a share is used", |_, world: &World| world.used() == 1),
            Property::sometimes("both shares are used", |_, world: &World| world.used() == 2),
            Property::sometimes("a share is kept free for nobody", |_, world: &World| {
                world.used() == 0 && world.kept_free() == 1
            }),
        ]
    }
}

#[test]
fn no_share_of_the_target_is_ever_used_by_two() {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let checker = Leases.checker().threads(threads).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}
