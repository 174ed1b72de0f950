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

use ::redis::{Script, ScriptInvocation};
use limits::{
    Micros,
    decision::{Reason, Rules, Share, State},
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

/// The ARGV of `decide.lua`, but for the wants that go between.
pub struct Arguments {
    head: Vec<String>,
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
    fn decide<'a>(&'a self, limit: usize, wants: &'a [u64]) -> Call<'a, Decision> {
        let account = &self.accounts[limit];
        let mut call = self.decide.prepare_invoke();
        call.key(&account.key);
        for argument in account.arguments.with(wants) {
            call.arg(argument);
        }
        Box::pin(async move {
            let reply: Vec<u64> = self.run(limit, call).await?;
            decision(&reply, account.classes)
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
        let Rules { limit, classes, max_pause } = &account.rules;
        let constants = |gcra: &limits::gcra::Gcra| {
            [gcra.emission_interval().0.to_string(), gcra.tolerance().0.to_string()]
        };
        let mut tail: Vec<String> = limit.iter().flat_map(constants).collect();
        for (name, rates) in account.classes.iter().zip(classes) {
            tail.extend([name.clone(), rates.len().to_string()]);
            tail.extend(rates.iter().flat_map(constants));
        }
        Self {
            head: vec![max_pause.0.to_string(), limit.len().to_string(), classes.len().to_string()],
            tail,
        }
    }

    /// The whole ARGV for one call; one want per class.
    pub fn with<'a>(&'a self, wants: &'a [u64]) -> impl Iterator<Item = std::borrow::Cow<'a, str>> {
        let fixed = |text: &'a String| text.as_str().into();
        let wants = wants.iter().map(|want| want.to_string().into());
        self.head.iter().map(fixed).chain(wants).chain(self.tail.iter().map(fixed))
    }
}

/// Reads the reply of `decide.lua`.
///
/// # Errors
/// It is not what the script returns.
pub fn decision(reply: &[u64], classes: usize) -> Result<Decision, StoreError> {
    let bad = || StoreError::Refused(format!("a reply of {} numbers", reply.len()));
    let ([now, penalty], rest) = reply.split_first_chunk().ok_or_else(bad)?;
    let (shares, odd) = rest.as_chunks::<3>();
    if shares.len() != classes || !odd.is_empty() {
        return Err(bad());
    }
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
        shares: shares.iter().map(share).collect::<Result<_, _>>()?,
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
        state: State { tats: tats.to_vec(), penalty_until: *penalty_until },
    })
}
