//! The same random steps through the Rust decision and through the Lua, compared at every step:
//! answers and what is remembered. A sample of them goes through a real Redis.
//!
//! A failure names policy, seed and step; the steps are a function of those.

use std::{collections::HashSet, fmt::Debug};

use decider::store::{
    Account, Store,
    redis::{DECIDE, Redis, THROTTLED},
};
use limits::{
    Micros,
    decision::{State, penalise},
    members::{Ask, Caller, Standing},
};

use crate::{
    cases::decided,
    policies,
    redis_server::{RedisServer, connected},
    script::Script,
};

const STEPS: u64 = 100_000;
/// Steps against the real Redis.
const SAMPLE: u64 = 3_000;
const SEED: u64 = 0x5eed_0001;
const T0: u64 = 1_760_000_000_123_456;
const DAYS_10: u64 = 864_000_000_000;

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

enum Step {
    Ask(Vec<Ask>),
    Throttled(Micros, String),
    /// The store comes back with foreign values.
    Foreign(State),
}

fn step(random: &mut Random, account: &Account, now: Micros) -> Step {
    match random.below(100) {
        0..4 => {
            let longest = account.rules.max_pause.0 * 3 / 2;
            let pause = if random.percent(20) { 0 } else { random.below(longest) };
            Step::Throttled(Micros(pause), random.below(500).to_string())
        }
        4 => Step::Foreign(foreign(random, account, now)),
        _ => Step::Ask((0..=random.below(2)).map(|_| ask(random, account, now)).collect()),
    }
}

fn ask(random: &mut Random, account: &Account, now: Micros) -> Ask {
    let wants = account.classes.iter().map(|_| want(random)).collect();
    if account.rules.terms.is_none() || random.percent(10) {
        return Ask { caller: None, wants };
    }
    let deadline = match random.below(10) {
        0 => now.0 - random.below(100_000),
        1 => now.0 + random.below(1_000_000),
        _ => now.0 + random.below(100_000),
    };
    let gateway = ["a", "b", "c", "d"][random.below(4) as usize].to_owned();
    let leaves = random.percent(5);
    Ask { caller: Some(Caller { gateway, deadline: Micros(deadline), leaves }), wants }
}

fn want(random: &mut Random) -> u64 {
    match random.below(10) {
        0..3 => 0,
        3..7 => 1,
        7..9 => random.below(12),
        _ => random.below(400_000_000),
    }
}

fn foreign(random: &mut Random, account: &Account, now: Micros) -> State {
    let near = |random: &mut Random| {
        let far = [1_000, 1_000_000, DAYS_10][random.below(3) as usize];
        Micros(now.0 + random.below(2 * far) - far)
    };
    State {
        tats: account.rules.tats().map(|_| near(random)).collect(),
        penalty_until: if random.percent(20) { near(random) } else { Micros::ZERO },
        ..State::default()
    }
}

/// Mostly on by about an interval, sometimes not at all, far, or back.
fn next_instant(random: &mut Random, account: &Account, now: Micros) -> Micros {
    let slowest = account.rules.tats().map(|gcra| gcra.emission_interval().0).max().unwrap_or(1);
    let moved = match random.below(100) {
        0..20 => now.0,
        20..65 => now.0 + random.below(slowest * 2),
        65..85 => now.0 + random.below(20_000),
        85..90 => now.0 + random.below(3_600_000_000),
        90..93 => now.0 + random.below(DAYS_10),
        93..97 => now.0 - random.below(1_000_000),
        _ => now.0 - random.below(DAYS_10),
    };
    // Where doubles are exact, and far from both ends.
    Micros(moved.clamp(T0 / 2, T0 * 2))
}

/// What a run met: a run that never grants, or never meets a stop, proves nothing.
#[derive(Default)]
struct Met {
    asks: u64,
    granted: u64,
    stops: u64,
    late: usize,
    members: usize,
}

impl Met {
    fn count(&mut self, standings: &[Standing]) {
        let of = |wanted| standings.iter().filter(|standing| **standing == wanted).count();
        self.late += of(Standing::Late);
        self.members += of(Standing::Member);
    }
}

/// Runs `steps` on both sides; returns the first difference.
fn compare(
    name: &str,
    account: &Account,
    script: &Script,
    seed: u64,
    steps: u64,
    met: &mut Met,
) -> Result<(), String> {
    let mut random = Random(seed);
    let (mut state, mut now) = (State::default(), Micros(T0));
    let mut known = HashSet::new();
    state.tats.resize(account.rules.tats().count(), Micros::ZERO);
    for number in 0..steps {
        now = next_instant(&mut random, account, now);
        let here = format!("policy {name}, seed {seed}, step {number}, now {}", now.0);
        match step(&mut random, account, now) {
            Step::Ask(asks) => {
                let ours = decided(account, &mut state, now, &asks);
                met.asks += 1;
                met.granted += ours.shares.iter().map(|share| share.granted.min(1)).sum::<u64>();
                met.stops += u64::from(!ours.penalty.is_zero());
                met.count(&ours.standings);
                same(&script.decide(now, &asks), &ours, || format!("{here}, {asks:?}"))?;
            }
            Step::Throttled(pause, id) => {
                let first = known.insert(id.clone());
                let counted = if first { pause } else { Micros::ZERO };
                let left = penalise(&account.rules, &mut state, now, counted);
                same(&script.throttled(now, pause, &id), &left, || format!("{here}, {pause}"))?;
            }
            Step::Foreign(foreign) => {
                script.overwrite(&foreign);
                state = foreign;
            }
        }
        same(&script.state(), &state, || here)?;
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(
    lua: &T,
    rust: &T,
    at: impl FnOnce() -> String,
) -> Result<(), String> {
    if lua == rust {
        return Ok(());
    }
    Err(format!("{}\n Lua: {lua:?}\nRust: {rust:?}", at()))
}

#[test]
fn rust_and_lua_agree_on_100_000_random_steps() {
    let mut met = Met::default();
    let steps = STEPS.div_ceil(policies::ALL.len() as u64);
    for (seed, (name, parts)) in (SEED..).zip(&policies::ALL) {
        let account = policies::account(name, parts);
        let script = Script::new(&account);
        if let Err(difference) = compare(name, &account, &script, seed, steps, &mut met) {
            panic!("{difference}");
        }
    }
    let Met { asks, granted, stops, late, members } = met;
    assert!(late > 500 && members > 2_000, "{late} asks were late, {members} of members");
    assert!(granted > asks / 10, "{granted} classes granted in {asks} asks");
    assert!(stops > asks / 100, "{stops} stops in {asks} asks");
}

/// Each changes one thing in a script that it must not do differently.
const MUTANTS: [(&str, &str); 28] = [
    ("if deadline < now or", "if"),
    ("or deadline > now + deadline_max then", "then"),
    ("held or count(is_held) < whole then", "true then"),
    ("(passed < 0 or passed > lease)", "(passed > lease)"),
    ("(passed < 0 or passed > lease)", "(passed < 0)"),
    ("is_step and math.min(at, time) or at", "is_step and time or at"),
    ("if time < at + forget_after then", "if time < at then"),
    ("time < unknown_until and elsewhere or", ""),
    ("if left < whole then", "if false then"),
    ("math.ceil(interval[i] * whole", "math.floor(interval[i] * whole"),
    (" and since[gateway] + lease <= time", ""),
    ("KEYS[1], field, 's:' .. gateway", "KEYS[1], field"),
    ("    if standing[ask] > 0 then", "    if true then"),
    ("math.min(missing, elsewhere)", "missing"),
    ("if tat[i] > legal then", "if false then"),
    ("if penalty_until > now + max_pause then", "if false then"),
    ("now + tolerance[i] + interval[i]", "now + tolerance[i]"),
    ("math.floor(free / interval[i]) + 1", "math.floor(free / interval[i])"),
    ("math.max(tat[i], now) + interval[i] * n", "tat[i] + interval[i] * n"),
    ("if penalty == 0 then", "if true then"),
    ("i > limit_rates and 2 or 1", "1"),
    ("if own > wait then", "if own >= wait then"),
    ("for i = first[class], last[class] do", "for i = first[class], first[class] do"),
    ("'c:' .. name .. ':'", "'c:' .. ':'"),
    ("set(fields[i], tat[i])", "set(fields[i], tat[i] - tat[i] % 10)"),
    ("math.min(pause, max_pause)", "pause"),
    ("math.max(penalty_until, now +", "math.min(2 ^ 52, now +"),
    ("  pause = 0\n", ""),
];

#[test]
fn a_script_that_differs_is_found_out() {
    for (from, to) in MUTANTS {
        let texts = [DECIDE, THROTTLED].map(|text| text.replacen(from, to, 1));
        assert!(texts != [DECIDE, THROTTLED], "no such text: {from}");
        let found = (SEED..).zip(&policies::ALL).any(|(seed, (name, parts))| {
            let account = policies::account(name, parts);
            let script = Script::of(&account, &texts[0], &texts[1]);
            compare(name, &account, &script, seed, 3_000, &mut Met::default()).is_err()
        });
        assert!(found, "not found out: `{from}` as `{to}`");
    }
}

#[tokio::test]
async fn a_sample_of_the_steps_agrees_on_the_real_redis() {
    let server = RedisServer::start();
    let mut raw = server.client().get_multiplexed_async_connection().await.unwrap();
    let (mut granted, mut refused) = (0, 0);
    for (index, (name, parts)) in policies::ALL.iter().enumerate() {
        let account = policies::account(name, parts);
        let store = Redis::new(server.target(), std::slice::from_ref(&account)).unwrap();
        connected(&store).await;
        let mut random = Random(SEED + index as u64);
        let mut state = State::default();
        let mut known = HashSet::new();
        let mut now = store.look(0).await.unwrap().now;
        for number in 0..SAMPLE.div_ceil(policies::ALL.len() as u64) {
            let here = format!("policy {name}, step {number}");
            match step(&mut random, &account, now) {
                Step::Ask(asks) => {
                    let theirs = store.decide(0, &asks).await.unwrap();
                    now = theirs.now;
                    let ours = decided(&account, &mut state, now, &asks);
                    granted += ours.shares.iter().map(|share| share.granted.min(1)).sum::<u64>();
                    refused += ours.shares.iter().filter(|share| share.reason.is_some()).count();
                    assert_eq!(theirs, ours, "{here}, {asks:?}");
                }
                Step::Throttled(pause, id) => {
                    // Its reply has no clock: read what was kept, and ask ours to keep the same.
                    let before = state.penalty_until;
                    let left = store.throttled(0, pause, &id).await.unwrap();
                    let after = store.look(0).await.unwrap();
                    now = after.now;
                    state.penalty_until = after.state.penalty_until;
                    let first = known.insert(id.clone());
                    let lengthened = state.penalty_until > before;
                    assert!(first || !lengthened, "{here}: a known report counted");
                    assert!(left <= account.rules.max_pause, "{here}: {left} left");
                    assert!(
                        lengthened
                            || state.penalty_until == before
                            || left == account.rules.max_pause
                    );
                }
                Step::Foreign(foreign) => {
                    overwrite(&mut raw, &account, &foreign).await;
                    state = foreign;
                }
            }
        }
    }
    assert!(granted > 100 && refused > 200, "{granted} granted, {refused} refused");
    server.check_every_key_expires().await;
}

async fn overwrite(raw: &mut redis::aio::MultiplexedConnection, account: &Account, state: &State) {
    let key = decider::store::redis::key(&account.name);
    let fields = decider::store::redis::fields(account);
    let values = state.tats.iter().chain([&state.penalty_until]);
    let pairs: Vec<(String, u64)> = fields.into_iter().zip(values.map(|value| value.0)).collect();
    let mut both = redis::pipe();
    both.del(&key).ignore().hset_multiple(&key, &pairs).ignore().pexpire(&key, 3_600_000).ignore();
    both.exec_async(raw).await.unwrap();
}
