//! The scripts under a Lua 5.1 of our own, with a fake Redis whose clock the test sets.

use decider::store::{
    Account, Decision,
    redis::{Arguments, DECIDE, REPORT_KEPT_MS, THROTTLED, decision, fields},
};
use limits::{
    Micros,
    decision::State,
    members::{Ask, Held, Members},
};
use mlua::{Function, Lua, Table};

/// Stands in for Redis: one hash, one expiry, marks of reports. Strict where Redis would be lenient:
/// what is written must be text of digits only, which a µs value put through `..` is not.
const FAKE: &str = r#"
clock, hash, expires, marks = 0, {}, nil, {}
local function digits(text)
  assert(type(text) == 'string' and text:match('^%d+$'), 'not whole digits: ' .. tostring(text))
  return text
end
local commands = {
  TIME = function()
    return { string.format('%.0f', math.floor(clock / 1000000)), string.format('%.0f', clock % 1000000) }
  end,
  HGETALL = function()
    local all = {}
    for field, value in pairs(hash) do
      all[#all + 1] = field
      all[#all + 1] = value
    end
    return all
  end,
  HDEL = function(_, ...)
    for _, field in ipairs({ ... }) do hash[field] = nil end
  end,
  HGET = function(_, field) return hash[field] or false end,
  HMGET = function(_, ...)
    local values = {}
    for i, field in ipairs({ ... }) do values[i] = hash[field] or false end
    return values
  end,
  HSET = function(_, ...)
    local pairs_ = { ... }
    assert(#pairs_ % 2 == 0)
    for i = 1, #pairs_, 2 do hash[pairs_[i]] = digits(pairs_[i + 1]) end
  end,
  PEXPIRE = function(_, ms) expires = clock + digits(ms) * 1000 end,
  PTTL = function()
    if next(hash) == nil then return -2 end
    return expires and math.floor((expires - clock) / 1000) or -1
  end,
  SET = function(key, _, nx, px, ms)
    assert(nx == 'NX' and px == 'PX' and tonumber(ms) >= 7200000)
    if marks[key] then return false end
    marks[key] = true
    return { ok = 'OK' }
  end,
}
redis = { call = function(command, ...) return commands[command](...) end }
"#;

pub struct Script {
    lua: Lua,
    decide: Function,
    throttled: Function,
    arguments: Arguments,
    fields: Vec<String>,
    account: Account,
}

impl Script {
    pub fn new(account: &Account) -> Self {
        Self::of(account, DECIDE, THROTTLED)
    }

    pub fn of(account: &Account, decide: &str, throttled: &str) -> Self {
        let lua = Lua::new();
        lua.load(FAKE).exec().unwrap();
        let function = |text: &str| lua.load(text).into_function().unwrap();
        Self {
            decide: function(decide),
            throttled: function(throttled),
            arguments: Arguments::of(account),
            fields: fields(account),
            account: account.clone(),
            lua,
        }
    }

    pub fn decide(&self, now: Micros, asks: &[Ask]) -> Decision {
        let argv: Vec<String> = self.arguments.with(asks).map(String::from).collect();
        self.enter(now, argv);
        let reply: Vec<f64> = self.decide.call(()).unwrap();
        let reply: Vec<u64> = reply.into_iter().map(whole).collect();
        self.check_expiry(now);
        decision(&reply, self.account.classes.len(), asks.len()).unwrap()
    }

    pub fn throttled(&self, now: Micros, pause: Micros, id: &str) -> Micros {
        let max_pause = self.account.rules.max_pause;
        let argv = [pause.0, max_pause.0, REPORT_KEPT_MS].map(|number| number.to_string());
        self.enter(now, argv.to_vec());
        let keys = vec!["weir:{x}".to_owned(), format!("weir:{{x}}:report:{id}")];
        self.lua.globals().set("KEYS", keys).unwrap();
        let left: f64 = self.throttled.call(()).unwrap();
        self.check_expiry(now);
        Micros(whole(left))
    }

    pub fn state(&self) -> State {
        let hash: Table = self.lua.globals().get("hash").unwrap();
        let field = |name: &String| {
            let kept: Option<String> = hash.get(name.as_str()).unwrap();
            Micros(kept.map_or(0, |text| text.parse().unwrap()))
        };
        let mut tats: Vec<Micros> = self.fields.iter().map(field).collect();
        let penalty_until = tats.pop().unwrap();
        let [born, clock, seen, unknown_until] =
            ["born", "m:clock", "m:seen", "m:unknown_until"].map(|name| field(&name.to_owned()));
        let all = hash.pairs::<String, String>().map(Result::unwrap);
        // One half of a lease without the other is one, too: that it is there is wrong.
        let leases = all.filter_map(|(name, _)| {
            let gateway = name.strip_prefix("g:").or(name.strip_prefix("s:"))?;
            let [since, until] = ["s:", "g:"].map(|half| field(&format!("{half}{gateway}")));
            Some((gateway.to_owned(), Held { since, until }))
        });
        let leases = leases.collect();
        let members = Members { clock, seen, unknown_until, leases };
        State { tats, penalty_until, born, members }
    }

    /// As a store that came back with foreign values.
    pub fn overwrite(&self, state: &State) {
        let hash: Table = self.lua.globals().get("hash").unwrap();
        let values = state.tats.iter().chain([&state.penalty_until]);
        hash.clear().unwrap();
        for (field, value) in self.fields.iter().zip(values) {
            hash.set(field.as_str(), value.0.to_string()).unwrap();
        }
        self.lua.load("expires = clock + 1e15").exec().unwrap();
    }

    fn enter(&self, now: Micros, argv: Vec<String>) {
        let globals = self.lua.globals();
        globals.set("clock", now.0 as f64).unwrap();
        globals.set("KEYS", vec!["weir:{x}"]).unwrap();
        globals.set("ARGV", argv).unwrap();
    }

    /// No key without expiry, and none that goes before its last instant has come.
    fn check_expiry(&self, now: Micros) {
        let state = self.state();
        let latest = state.tats.iter().chain([&state.penalty_until]).max().unwrap();
        let expires: Option<f64> = self.lua.globals().get("expires").unwrap();
        if !latest.is_zero() {
            let expires = expires.expect("a key without expiry");
            assert!(*latest <= now || expires >= latest.0 as f64, "expires before {latest}");
        }
    }
}

/// Redis cuts a reply's numbers to integers; here they must be integers already.
fn whole(number: f64) -> u64 {
    assert!(number.fract() == 0.0 && number >= 0.0, "{number} is cut by Redis");
    number as u64
}
