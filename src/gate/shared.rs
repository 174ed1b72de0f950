//! The record of a limit in Envoy's shared data.
//!
//! Promise: a look is cheap and at most a millisecond old; a change is a bounded compare-and-swap on
//! what is there now.

use limits::Micros;

use crate::record::Record;

/// One look at shared data serves all requests of a worker for so long. Another worker's news are
/// seen that much later: less than a round trip to the decider.
const LOOK: Micros = Micros::from_millis(1);
/// Attempts at a compare-and-swap. Each one that fails means that another worker succeeded.
const SWAPS_MAX: usize = 64;

/// A map shared by all workers of this Envoy.
pub trait SharedData {
    /// The value and its version.
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)>;
    /// Replaces the value if it still has this version; `None` means that there is no value yet.
    /// False when someone else was first.
    fn swap(&self, key: &str, value: &[u8], version: Option<u32>) -> bool;
}

/// The record in shared data, and what this worker has seen of it last.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    key: String,
    /// Hash of the policy: whose classes these are.
    policy: u64,
    classes: usize,
    pub seen: Record,
    pub seen_at: Option<Micros>,
}

impl Shared {
    pub fn new(key: String, policy: u64, classes: usize) -> Self {
        Self { key, policy, classes, seen: Record::new(policy, classes), seen_at: None }
    }

    /// The record, at most [`LOOK`] old.
    pub fn look(&mut self, shared: &impl SharedData, now: Micros) -> &Record {
        if !self.seen_at.is_some_and(|at| at <= now && now.minus(at) < LOOK) {
            let bytes = shared.get(&self.key).map(|(bytes, _)| bytes).unwrap_or_default();
            self.seen = Record::decode(&bytes, self.policy, self.classes);
            self.seen_at = Some(now);
        }
        &self.seen
    }

    /// `None` when all attempts lost against other workers.
    pub fn update<T>(
        &mut self,
        shared: &impl SharedData,
        change: impl Fn(&mut Record) -> T,
    ) -> Option<T> {
        for _ in 0..SWAPS_MAX {
            let (bytes, version) = match shared.get(&self.key) {
                Some((bytes, version)) => (bytes, Some(version)),
                None => (Vec::new(), None),
            };
            let before = Record::decode(&bytes, self.policy, self.classes);
            let mut record = before.clone();
            let result = change(&mut record);
            if record == before || shared.swap(&self.key, &record.encode(), version) {
                self.seen = record;
                return Some(result);
            }
        }
        None
    }
}
