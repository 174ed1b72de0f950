//! Which messages were accepted, to find those accepted twice.
//!
//! Promise: memory is bounded, and a message is not called accepted twice unless two equal ids
//! were, but for a collision of 64-bit hashes (below 1 in 10 million for a million ids).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

pub const MAX_IDS: usize = 1_000_000;

/// A message's id, of constant size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(u64);

impl MessageId {
    pub fn new(text: &str) -> Self {
        // Not the map's own hasher: its keys differ from run to run.
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(hasher.finish())
    }
}

#[derive(Debug, Default)]
pub struct Messages {
    /// True: more than once.
    accepted: HashMap<MessageId, bool>,
    twice: u64,
    truncated: bool,
}

impl Messages {
    pub fn accepted(&mut self, id: MessageId) {
        let full = self.accepted.len() >= MAX_IDS;
        match self.accepted.entry(id) {
            Entry::Occupied(mut known) => {
                if !known.insert(true) {
                    self.twice += 1;
                }
            }
            Entry::Vacant(_) if full => self.truncated = true,
            Entry::Vacant(new) => {
                new.insert(false);
            }
        }
    }

    /// Ids accepted at least once.
    pub fn distinct(&self) -> usize {
        self.accepted.len()
    }

    /// Ids accepted more than once.
    pub fn twice(&self) -> u64 {
        self.twice
    }

    /// Ids beyond the first [`MAX_IDS`] were not looked at.
    pub fn truncated(&self) -> bool {
        self.truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_accepted_three_times_is_one_accepted_twice() {
        let mut messages = Messages::default();
        for id in ["a", "b", "a", "a", "c"] {
            messages.accepted(MessageId::new(id));
        }
        assert_eq!((messages.distinct(), messages.twice()), (3, 1));
    }

    #[test]
    fn ids_beyond_the_bound_are_said_and_known_ones_still_found() {
        let mut messages = Messages::default();
        for n in 0..=MAX_IDS {
            messages.accepted(MessageId::new(&n.to_string()));
        }
        assert!(messages.truncated());
        assert_eq!((messages.distinct(), messages.twice()), (MAX_IDS, 0));
        messages.accepted(MessageId::new("7"));
        assert_eq!(messages.twice(), 1);
    }
}
