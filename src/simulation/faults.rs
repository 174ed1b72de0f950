//! Who dies when.

use super::{Event, GATEWAYS, Instant, MS, SECOND, TROUBLED, World};

#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Nothing gets through between a gateway and the store, for so long.
    CutOff(usize, Instant),
    Reconnected(usize),
    /// The process is stopped, and goes on.
    Stalls(usize, Instant),
    /// The process dies; another one starts at once.
    Dies(usize),
    /// No requests come to a gateway, for so long.
    Idles(usize, Instant),
    BusyAgain(usize),
    /// The store is away for so long, and may come back without its memory.
    StoreFails(Instant, bool),
    StoreReturns(bool),
    /// The store's clock is set, by so many µs.
    ClockStep(i64),
}
use Fault::{
    BusyAgain, ClockStep, CutOff, Dies, Idles, Reconnected, Stalls, StoreFails, StoreReturns,
};

impl World {
    pub fn foresee_faults(&mut self) {
        for _ in 0..self.random.usize(2..14) {
            let at = self.random.u64(200 * MS..TROUBLED);
            let fault = self.some_fault();
            self.foresee(at, Event::Fault(fault));
        }
    }

    fn some_fault(&mut self) -> Fault {
        let random = &mut self.random;
        let gateway = random.usize(0..GATEWAYS);
        let long = random.u64(20 * MS..4 * SECOND);
        match random.u64(0..100) {
            0..45 => CutOff(gateway, long),
            45..55 => Stalls(gateway, long),
            55..67 => Dies(gateway),
            67..77 => Idles(gateway, long + SECOND),
            77..92 => StoreFails(long, random.bool()),
            _ => {
                let far = [50_000, 1_000_000, 3_600_000_000][random.usize(0..3)];
                ClockStep(random.i64(-far..far))
            }
        }
    }

    pub fn befalls(&mut self, fault: Fault) {
        self.tell(|| format!("{fault:?}"));
        match fault {
            CutOff(gateway, long) => {
                self.gateways[gateway].is_cut_off = true;
                self.foresee(long, Event::Fault(Reconnected(gateway)));
            }
            Reconnected(gateway) => self.gateways[gateway].is_cut_off = false,
            Stalls(gateway, long) => self.gateways[gateway].stalled_until = self.now + long,
            Dies(gateway) => self.gateways[gateway].starts(&self.config, &mut self.random),
            Idles(gateway, long) => {
                self.gateways[gateway].is_idle = true;
                self.foresee(long, Event::Fault(BusyAgain(gateway)));
            }
            BusyAgain(gateway) => self.gateways[gateway].is_idle = false,
            StoreFails(long, loses_memory) => {
                self.store.is_up = false;
                self.foresee(long, Event::Fault(StoreReturns(loses_memory)));
            }
            StoreReturns(loses_memory) => {
                self.store.is_up = true;
                if loses_memory {
                    self.store.loses_its_memory();
                }
            }
            ClockStep(by) => self.store.clock.step(by),
        }
    }
}
