//! The reply to an ask: the JSON of [`limits::wire::DecideReply`].
//!
//! By hand, because most of it is the same for all asks of a batch and written once; the names in it
//! are the policy's, whose characters need no escape. A test reads it back with the wire's type.

use std::{fmt::Write, sync::Arc};

use limits::{Micros, decision::Share, members::Standing};

use crate::{
    batch::{Answer, Shared, Want},
    store::{Account, Decision},
};

pub(super) fn write(account: &Account, answer: &Answer) -> String {
    let Shared { decision, written } = &*answer.shared;
    let rest = written.get_or_init(|| rest(account, decision));
    // Room for a few classes; more of them only cost another allocation.
    let mut text = String::with_capacity(rest.len() + 192);
    // Writing to a string does not fail.
    let _ = write!(text, "{{\"now_us\":{},\"granted\":[", decision.now.0);
    for (i, want) in answer.granted.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let class = &account.classes[want.class];
        let _ = write!(text, "{comma}{{\"class\":\"{class}\",\"n\":{}}}", want.n);
    }
    text.push_str(rest);
    let _ = write!(text, "\"standing\":\"{}\"}}", answer.standing.name());
    text
}

/// What follows the grants and is the same for all; the standing comes last.
fn rest(account: &Account, decision: &Decision) -> String {
    let shares = || account.classes.iter().zip(&decision.shares);
    let waits = shares().filter(|(_, share)| !share.wait.is_zero());
    let waits: Vec<String> =
        waits.map(|(class, share)| format!("\"{class}\":{}", share.wait.0)).collect();
    let reasons: Vec<String> = shares()
        .filter_map(|(class, share)| Some((class, share.reason?.name())))
        .map(|(class, reason)| format!("\"{class}\":\"{reason}\""))
        .collect();
    format!(
        "],\"wait_us\":{{{}}},\"reason\":{{{}}},\"penalty_us\":{},\"born_us\":{},",
        waits.join(","),
        reasons.join(","),
        decision.penalty.0,
        decision.born.0
    )
}

/// What [`super::Engine::Nothing`] answers.
pub(super) fn all_granted(account: &Account, wants: Vec<Want>) -> Answer {
    let free = Share { granted: 0, wait: Micros::ZERO, reason: None };
    let shares = vec![free; account.classes.len()];
    let (now, penalty, born) = (Micros::ZERO, Micros::ZERO, Micros::ZERO);
    let decision = Decision { now, penalty, born, shares, standings: Vec::new() };
    Answer { granted: wants, standing: Standing::Guest, shared: Arc::new(decision.into()) }
}
