//! What a gateway knows about one limit, as bytes in Envoy's shared data.
//!
//! One record per limit, so that the common refusal costs one look. Instants are on the process's
//! monotonic clock (µs): a stepping wall clock changes nothing here. The first byte is the version:
//! old and new code meet on the same data during an upgrade, and a record of another version or
//! length counts as empty.

use limits::Micros;

const VERSION: u8 = 1;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The provider asked *this* gateway to stop until then. Only ever lengthened.
    pub pause_until: Micros,
    /// The decider told of a stop until then. Used when it cannot be asked. Only ever lengthened.
    pub learnt_stop_until: Micros,
    pub breaker: Breaker,
    /// TAT of the headroom share.
    pub headroom_tat: Micros,
    /// A higher class was refused headroom: lower ones than `reserved_for` wait until then.
    pub reserved_until: Micros,
    pub reserved_for: u64,
    /// In the policy's order.
    pub classes: Vec<ClassRecord>,
}

/// Whether the decider is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row; 0: closed, requests ask.
    pub failures: u64,
    /// When the next probe is due, while open.
    pub probe_at: Micros,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassRecord {
    /// Nothing of the class is granted before.
    pub retry_at: Micros,
    /// Refusals need no call before: `retry_at`, but never long after it was learnt.
    pub recheck_at: Micros,
    /// What the class waits for: [`limits::decision::Reason`] as a number, see `gate`.
    pub reason: u64,
    /// TAT of the class's cap on headroom.
    pub headroom_tat: Micros,
}

const FIXED: usize = 7;
const PER_CLASS: usize = 4;

impl Record {
    pub fn new(classes: usize) -> Self {
        Self { classes: vec![ClassRecord::default(); classes], ..Self::default() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let fixed: [u64; FIXED] = [
            self.pause_until.0,
            self.learnt_stop_until.0,
            self.breaker.failures,
            self.breaker.probe_at.0,
            self.headroom_tat.0,
            self.reserved_until.0,
            self.reserved_for,
        ];
        let class = |class: &ClassRecord| {
            [class.retry_at.0, class.recheck_at.0, class.reason, class.headroom_tat.0]
        };
        let words = fixed.into_iter().chain(self.classes.iter().flat_map(class));
        std::iter::once(VERSION).chain(words.flat_map(u64::to_le_bytes)).collect()
    }

    /// The record for a policy of so many classes; an empty one when the bytes are not of this
    /// version and length.
    pub fn decode(bytes: &[u8], classes: usize) -> Self {
        Self::read(bytes, classes).unwrap_or_else(|| Self::new(classes))
    }

    fn read(bytes: &[u8], classes: usize) -> Option<Self> {
        let (version, words) = bytes.split_first()?;
        let expected = classes.checked_mul(PER_CLASS)?.checked_add(FIXED)?.checked_mul(8)?;
        if *version != VERSION || words.len() != expected {
            return None;
        }
        let mut words = words.chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        let mut next = || words.next();
        let mut record = Self {
            pause_until: Micros(next()?),
            learnt_stop_until: Micros(next()?),
            breaker: Breaker { failures: next()?, probe_at: Micros(next()?) },
            headroom_tat: Micros(next()?),
            reserved_until: Micros(next()?),
            reserved_for: next()?,
            classes: Vec::with_capacity(classes),
        };
        for _ in 0..classes {
            record.classes.push(ClassRecord {
                retry_at: Micros(next()?),
                recheck_at: Micros(next()?),
                reason: next()?,
                headroom_tat: Micros(next()?),
            });
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_went() {
        let mut record = Record::new(2);
        record.pause_until = Micros(1);
        record.breaker = Breaker { failures: 2, probe_at: Micros(3) };
        record.reserved_for = 1;
        record.classes[1] = ClassRecord {
            retry_at: Micros(4),
            recheck_at: Micros(5),
            reason: 2,
            headroom_tat: Micros(u64::MAX),
        };
        assert_eq!(Record::decode(&record.encode(), 2), record);
    }

    #[test]
    fn foreign_bytes_count_as_empty() {
        let record = Record { pause_until: Micros(9), ..Record::new(1) };
        let mut bytes = record.encode();
        assert_eq!(Record::decode(&bytes, 2), Record::new(2), "another policy's");
        bytes[0] = 99;
        assert_eq!(Record::decode(&bytes, 1), Record::new(1), "another version's");
        assert_eq!(Record::decode(&[], 1), Record::new(1));
    }
}
