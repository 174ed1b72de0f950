//! Redis 5 or later: one number per rate, one clock, one round trip.
//!
//! Promise: a decision is one EVALSHA (`lua/decide.lua`, the same function as
//! [`limits::decision::decide`]) on Redis' own clock; deciders and gateways need no common time. All
//! keys of a limit share a hash tag, and every key expires.
//!
//! Where it trips: see `link` for a Redis that is away, or there but silent, and `nodes` for a
//! cluster. A Redis that forgot the scripts (restart, failover) is sent them again in the same call.

mod link;
mod nodes;
mod source;
pub mod target;

use std::borrow::Cow;

use ::redis::{Script, ScriptInvocation};
use limits::{
    Micros,
    decision::{Reason, Rules, Share, State},
    members::{Ask, Standing},
};

use super::{Account, Call, Decision, Snapshot, Store, StoreError};
use nodes::Nodes;
use target::Target;

pub const DECIDE: &str = include_str!("../../lua/decide.lua");
pub const THROTTLED: &str = include_str!("../../lua/throttled.lua");
const LOOK: &str = include_str!("../../lua/look.lua");

/// How long a report is known: far longer than any gateway repeats one.
pub const REPORT_KEPT_MS: u64 = 2 * 3_600_000;

pub struct Redis {
    nodes: Nodes,
    decide: Script,
    throttled: Script,
    look: Script,
    accounts: Vec<Prepared>,
}

/// What does not change from call to call.
struct Prepared {
    key: String,
    arguments: Arguments,
    fields: Vec<String>,
    max_pause: Micros,
    classes: usize,
}

/// The ARGV of `decide.lua`, but for the asks that go between.
pub struct Arguments {
    counts: [String; 3],
    terms: [String; 4],
    classes: usize,
    tail: Vec<String>,
}

impl Redis {
    /// Connects in the background, now and whenever it must; call within a tokio runtime.
    ///
    /// # Errors
    /// An address cannot be used.
    pub fn new(target: Target, accounts: &[Account]) -> Result<Self, StoreError> {
        let keys = accounts.iter().map(|account| key(&account.name)).collect();
        let nodes = Nodes::start(target, keys);
        Ok(Self {
            nodes: nodes.map_err(|error| StoreError::Refused(error.to_string()))?,
            decide: Script::new(DECIDE),
            throttled: Script::new(THROTTLED),
            look: Script::new(LOOK),
            accounts: accounts.iter().map(Prepared::of).collect(),
        })
    }

    async fn run<T: ::redis::FromRedisValue>(
        &self,
        limit: usize,
        call: ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        self.nodes.run(limit, &call).await
    }
}

impl Store for Redis {
    fn decide<'a>(&'a self, limit: usize, asks: &'a [Ask]) -> Call<'a, Decision> {
        let account = &self.accounts[limit];
        let mut call = self.decide.prepare_invoke();
        call.key(&account.key);
        for argument in account.arguments.with(asks) {
            call.arg(argument);
        }
        Box::pin(async move {
            let reply: Vec<u64> = self.run(limit, call).await?;
            decision(&reply, account.classes, asks.len())
        })
    }

    fn throttled<'a>(&'a self, limit: usize, pause: Micros, id: &'a str) -> Call<'a, Micros> {
        let account = &self.accounts[limit];
        let mut call = self.throttled.prepare_invoke();
        call.key(&account.key);
        call.key(format!("{}:report:{id}", account.key));
        call.arg(pause.min(account.max_pause).0);
        call.arg(account.max_pause.0);
        call.arg(REPORT_KEPT_MS);
        Box::pin(async move { Ok(Micros(self.run(limit, call).await?)) })
    }

    fn look(&self, limit: usize) -> Call<'_, Snapshot> {
        let account = &self.accounts[limit];
        let mut call = self.look.prepare_invoke();
        call.key(&account.key).arg(&account.fields);
        Box::pin(async move {
            let reply: Vec<String> = self.run(limit, call).await?;
            snapshot(&reply, account.fields.len())
        })
    }

    fn ping(&self) -> Call<'_, ()> {
        Box::pin(self.nodes.ping())
    }
}

impl Prepared {
    fn of(account: &Account) -> Self {
        Self {
            key: key(&account.name),
            arguments: Arguments::of(account),
            fields: fields(account),
            max_pause: account.rules.max_pause,
            classes: account.classes.len(),
        }
    }
}

/// The hash that holds a limit. The braces are Redis Cluster's hash tag.
pub fn key(limit: &str) -> String {
    format!("weir:{{{limit}}}")
}

/// The hash's fields: the TATs in the order of [`Rules::tats`], and the penalty.
pub fn fields(account: &Account) -> Vec<String> {
    let Rules { limit, classes, .. } = &account.rules;
    let mut fields: Vec<String> = (0..limit.len()).map(|i| format!("r{i}")).collect();
    for (name, rates) in account.classes.iter().zip(classes) {
        fields.extend((0..rates.len()).map(|i| format!("c:{name}:{i}")));
    }
    fields.push("penalty_until".to_owned());
    fields
}

impl Arguments {
    pub fn of(account: &Account) -> Self {
        let Rules { limit, classes, max_pause, terms } = &account.rules;
        let constants = |gcra: &limits::gcra::Gcra| {
            [gcra.emission_interval().0.to_string(), gcra.tolerance().0.to_string()]
        };
        let mut tail: Vec<String> = limit.iter().flat_map(constants).collect();
        for (name, rates) in account.classes.iter().zip(classes) {
            tail.extend([name.clone(), rates.len().to_string()]);
            tail.extend(rates.iter().flat_map(constants));
        }
        let terms = terms.map_or([0; 4], |terms| {
            let gateways = u64::from(terms.gateways);
            [terms.lease.0, terms.forget_after.0, terms.deadline_max().0, gateways]
        });
        Self {
            counts: [max_pause.0, limit.len() as u64, classes.len() as u64]
                .map(|count| count.to_string()),
            terms: terms.map(|term| term.to_string()),
            classes: classes.len(),
            tail,
        }
    }

    /// The whole ARGV for one call.
    pub fn with<'a>(&'a self, asks: &'a [Ask]) -> impl Iterator<Item = Cow<'a, str>> {
        let fixed = |text: &'a String| Cow::from(text);
        let asked = asks.iter().flat_map(|ask| self.ask(ask));
        let count = std::iter::once(asks.len().to_string().into());
        let head = self.counts.iter().map(fixed).chain(count).chain(self.terms.iter().map(fixed));
        head.chain(asked).chain(self.tail.iter().map(fixed))
    }

    fn ask<'a>(&self, ask: &'a Ask) -> impl Iterator<Item = Cow<'a, str>> {
        let (kind, gateway, deadline) = match &ask.caller {
            None => ("0", "", Micros::ZERO),
            Some(caller) => {
                let kind = if caller.leaves { "2" } else { "1" };
                (kind, caller.gateway.as_str(), caller.deadline)
            }
        };
        let wants = (0..self.classes).map(|class| ask.wants.get(class).copied().unwrap_or(0));
        let caller = [kind.into(), gateway.into(), deadline.0.to_string().into()];
        caller.into_iter().chain(wants.map(|want| want.to_string().into()))
    }
}

/// Reads the reply of `decide.lua`.
///
/// # Errors
/// It is not what the script returns.
pub fn decision(reply: &[u64], classes: usize, asks: usize) -> Result<Decision, StoreError> {
    let bad = || StoreError::Refused(format!("a reply of {} numbers", reply.len()));
    let ([now, penalty, born], rest) = reply.split_first_chunk().ok_or_else(bad)?;
    let (shares, standings) = rest.split_at_checked(classes * 3).ok_or_else(bad)?;
    if standings.len() != asks {
        return Err(bad());
    }
    let standing = |number: &u64| match number {
        0 => Ok(Standing::Late),
        1 => Ok(Standing::Guest),
        2 => Ok(Standing::Member),
        _ => Err(StoreError::Refused(format!("standing {number}"))),
    };
    let share = |[granted, wait, reason]: &[u64; 3]| {
        let reason = match reason {
            0 => None,
            1 => Some(Reason::Rate),
            2 => Some(Reason::ClassRate),
            3 => Some(Reason::Penalty),
            _ => return Err(StoreError::Refused(format!("reason {reason}"))),
        };
        Ok(Share { granted: *granted, wait: Micros(*wait), reason })
    };
    Ok(Decision {
        now: Micros(*now),
        penalty: Micros(*penalty),
        born: Micros(*born),
        shares: shares.as_chunks::<3>().0.iter().map(share).collect::<Result<_, _>>()?,
        standings: standings.iter().map(standing).collect::<Result<_, _>>()?,
    })
}

/// Reads the reply of `look.lua`.
fn snapshot(reply: &[String], fields: usize) -> Result<Snapshot, StoreError> {
    let bad = || StoreError::Refused(format!("a reply of {} texts", reply.len()));
    let number = |text: &String| match text.as_str() {
        "" => Ok(Micros::ZERO),
        text => text.parse().map(Micros).map_err(|_| bad()),
    };
    let numbers = reply.iter().map(number).collect::<Result<Vec<Micros>, _>>()?;
    let ([seconds, micros], [tats @ .., penalty_until]) =
        numbers.split_first_chunk().ok_or_else(bad)?
    else {
        return Err(bad());
    };
    if tats.len() + 1 != fields {
        return Err(bad());
    }
    Ok(Snapshot {
        now: Micros::from_secs(seconds.0).plus(*micros),
        state: State { tats: tats.to_vec(), penalty_until: *penalty_until, ..State::default() },
    })
}
