//! What a gateway knows about one limit, as bytes in Envoy's shared data.
//!
//! One record per limit, so that the common refusal costs one look. Instants are on the process's
//! monotonic clock (µs): a stepping wall clock changes nothing here. The first byte is the version:
//! old and new code meet on the same data during an upgrade, and a record of another version counts
//! as empty. Old and new policies meet as well: what does not depend on the classes (the stops, the
//! lease, the share) is kept, what does is kept only for the same policy.

use limits::{Micros, lease::Lease};

const VERSION: u8 = 3;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Hash of the policy that the classes belong to.
    pub policy: u64,
    /// The provider asked *this* gateway to stop until then. Only ever lengthened.
    pub pause_until: Micros,
    /// The decider told of a stop until then. Used when it cannot be asked. Only ever lengthened.
    pub learnt_stop_until: Micros,
    /// Which memory of the store told all this; 0: none yet.
    pub born: Micros,
    /// Whether the decider is asked, and what may go when it is not.
    pub lease: Lease,
    /// TAT of what goes without asking.
    pub own_tat: Micros,
    /// The last of it went on the share of the target.
    pub on_share: bool,
    /// A higher class was refused headroom: lower ones than `reserved_for` wait until then.
    pub reserved_until: Micros,
    pub reserved_for: u64,
    /// In the policy's order.
    pub classes: Vec<ClassRecord>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassRecord {
    /// Nothing of the class is granted before.
    pub retry_at: Micros,
    /// Refusals need no call before: `retry_at`, but never long after it was learnt.
    pub recheck_at: Micros,
    /// What the class waits for: [`limits::decision::Reason`] as a number, see `gate`.
    pub reason: u64,
    /// TAT of the class's cap on what goes without asking.
    pub own_tat: Micros,
}

const FIXED: usize = 17;

impl Record {
    pub fn new(policy: u64, classes: usize) -> Self {
        Self { policy, classes: vec![ClassRecord::default(); classes], ..Self::default() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let fixed: [u64; FIXED] = [
            self.policy,
            self.pause_until.0,
            self.learnt_stop_until.0,
            self.born.0,
            self.lease.failures,
            self.lease.probe_at.0,
            self.lease.heard_at.0,
            self.lease.store_at.0,
            self.lease.taken_until.0,
            self.lease.counted_until.0,
            self.lease.leaving_until.0,
            self.lease.renewed_at.0,
            self.lease.used_at.0,
            self.own_tat.0,
            u64::from(self.on_share),
            self.reserved_until.0,
            self.reserved_for,
        ];
        let class = |class: &ClassRecord| {
            [class.retry_at.0, class.recheck_at.0, class.reason, class.own_tat.0]
        };
        let words = fixed.into_iter().chain(self.classes.iter().flat_map(class));
        std::iter::once(VERSION).chain(words.flat_map(u64::to_le_bytes)).collect()
    }

    /// The record for a policy of so many classes; an empty one when the bytes are not of this
    /// version.
    pub fn decode(bytes: &[u8], policy: u64, classes: usize) -> Self {
        Self::read(bytes, policy, classes).unwrap_or_else(|| Self::new(policy, classes))
    }

    fn read(bytes: &[u8], policy: u64, classes: usize) -> Option<Self> {
        let (version, words) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        let mut words = words.chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        let mut next = || words.next();
        let theirs = next()?;
        let mut record = Self {
            policy,
            pause_until: Micros(next()?),
            learnt_stop_until: Micros(next()?),
            born: Micros(next()?),
            lease: Lease {
                failures: next()?,
                probe_at: Micros(next()?),
                heard_at: Micros(next()?),
                store_at: Micros(next()?),
                taken_until: Micros(next()?),
                counted_until: Micros(next()?),
                leaving_until: Micros(next()?),
                renewed_at: Micros(next()?),
                used_at: Micros(next()?),
            },
            own_tat: Micros(next()?),
            on_share: next()? != 0,
            reserved_until: Micros(next()?),
            reserved_for: next()?,
            classes: Vec::with_capacity(classes),
        };
        if theirs != policy {
            // Another order of classes, too: what was reserved for one would be another's.
            record.reserved_until = Micros::ZERO;
            record.classes.resize(classes, ClassRecord::default());
            return Some(record);
        }
        for _ in 0..classes {
            record.classes.push(ClassRecord {
                retry_at: Micros(next()?),
                recheck_at: Micros(next()?),
                reason: next()?,
                own_tat: Micros(next()?),
            });
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        Lease {
            failures: 2,
            probe_at: Micros(3),
            heard_at: Micros(11),
            store_at: Micros(12),
            taken_until: Micros(13),
            counted_until: Micros(14),
            leaving_until: Micros(15),
            renewed_at: Micros(16),
            used_at: Micros(17),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_went() {
        let mut record = Record::new(7, 2);
        record.pause_until = Micros(1);
        record.born = Micros(6);
        record.lease = lease();
        record.on_share = true;
        record.reserved_for = 1;
        record.classes[1] = ClassRecord {
            retry_at: Micros(4),
            recheck_at: Micros(5),
            reason: 2,
            own_tat: Micros(u64::MAX),
        };
        assert_eq!(Record::decode(&record.encode(), 7, 2), record);
    }

    #[test]
    fn foreign_bytes_count_as_empty() {
        let mut bytes = Record { pause_until: Micros(9), ..Record::new(7, 1) }.encode();
        bytes[0] = 99;
        assert_eq!(Record::decode(&bytes, 7, 1), Record::new(7, 1), "another version's");
        assert_eq!(Record::decode(&[], 7, 1), Record::new(7, 1));
        assert_eq!(Record::decode(&[VERSION; 20], 7, 1), Record::new(7, 1), "too short");
    }

    #[test]
    fn another_policy_keeps_the_stop_the_lease_and_the_share() {
        let mut old = Record::new(7, 1);
        old.pause_until = Micros(9);
        old.lease = lease();
        old.own_tat = Micros(5);
        old.classes[0].retry_at = Micros(4);
        let new = Record::decode(&old.encode(), 8, 2);
        let kept = (new.pause_until, new.lease, new.own_tat);
        assert_eq!(kept, (old.pause_until, old.lease, old.own_tat));
        assert_eq!(new.classes, [ClassRecord::default(); 2]);
    }
}
