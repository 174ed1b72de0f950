//! The reply to an ask, written from what the batch shares: the JSON of [`limits::wire::DecideReply`]
//! without building one.

use std::sync::Arc;

use limits::{
    Micros,
    decision::{Reason, Share},
};
use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::{
    batch::{Answer, Want},
    store::{Account, Decision},
};

#[derive(Serialize)]
pub(super) struct Reply<'a> {
    now_us: u64,
    granted: Granted<'a>,
    wait_us: Waits<'a>,
    reason: Reasons<'a>,
    penalty_us: u64,
}

struct Granted<'a>(&'a [String], &'a [Want]);
struct Waits<'a>(&'a [String], &'a [Share]);
struct Reasons<'a>(&'a [String], &'a [Share]);

#[derive(Serialize)]
struct Count<'a> {
    class: &'a str,
    n: u64,
}

impl<'a> Reply<'a> {
    pub fn new(account: &'a Account, answer: &'a Answer) -> Self {
        let (classes, decision) = (&account.classes, &answer.decision);
        Self {
            now_us: decision.now.0,
            granted: Granted(classes, &answer.granted),
            wait_us: Waits(classes, &decision.shares),
            reason: Reasons(classes, &decision.shares),
            penalty_us: decision.penalty.0,
        }
    }
}

/// What [`super::Engine::Nothing`] answers.
pub(super) fn all_granted(account: &Account, wants: Vec<Want>) -> Answer {
    let free = Share { granted: 0, wait: Micros::ZERO, reason: None };
    Answer {
        granted: wants,
        decision: Arc::new(Decision {
            now: Micros::ZERO,
            penalty: Micros::ZERO,
            shares: vec![free; account.classes.len()],
        }),
    }
}

impl Serialize for Granted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.1.len()))?;
        for want in self.1 {
            list.serialize_element(&Count { class: &self.0[want.class], n: want.n })?;
        }
        list.end()
    }
}

impl Serialize for Waits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let waiting =
            |(class, share): (_, &Share)| (!share.wait.is_zero()).then_some((class, share.wait.0));
        serializer.collect_map(self.0.iter().zip(self.1).filter_map(waiting))
    }
}

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let held = |(class, share): (_, &Share)| -> Option<(_, Reason)> {
            share.reason.map(|reason| (class, reason))
        };
        serializer.collect_map(self.0.iter().zip(self.1).filter_map(held))
    }
}
