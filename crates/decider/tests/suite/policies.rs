//! Policies to decide under: one rate and several, slow and fast, caps above one another.

use decider::{document, store::Account};

/// The incident's.
pub const SAMPLE: &str = "
rates: [{ target: 90, per: 1s, burst: 5 }]
contract: [{ requests: 100, per: 1s }]
classes:
  - { name: otp, values: [otp] }
  - { name: marketing, values: [marketing], rates: [{ target: 70, per: 1s, burst: 5 }] }
";

/// A rate per second and one per minute, for the limit and for a class.
const SEVERAL: &str = "
rates: [{ target: 90, per: 1s, burst: 5 }, { target: 900, per: 1m, burst: 20 }]
contract: [{ requests: 100, per: 1s }, { requests: 1000, per: 1m }]
classes:
  - { name: otp, values: [otp], rates: [{ target: 80, per: 1s, burst: 2 }] }
  - name: marketing
    values: [marketing]
    rates: [{ target: 70, per: 1s, burst: 5 }, { target: 30, per: 1m, burst: 30 }]
";

/// Intervals of minutes, a stop of a day.
const SLOW: &str = "
rates: [{ target: 7, per: 1h, burst: 3 }]
contract: [{ requests: 20, per: 1h }]
classes: [{ name: all, values: [all] }]
throttle: { max_pause: 24h }
";

/// The shortest interval there is, 1 us.
const FAST: &str = "
rates: [{ target: 1000000, per: 1s, burst: 100 }]
contract: [{ requests: 10000000, per: 1s }]
classes:
  - { name: a, values: [a], rates: [{ target: 333333, per: 1s, burst: 7 }] }
  - { name: b, values: [b] }
throttle: { max_pause: 1s }
";

/// Five classes, most with a cap, one burst that takes most of a year to refill.
const MANY: &str = "
rates: [{ target: 1, per: 24h, burst: 300 }, { target: 500, per: 1s, burst: 50 }]
contract: [{ requests: 1000, per: 24h }]
classes:
  - { name: a, values: [a], rates: [{ target: 1, per: 24h, burst: 1 }] }
  - { name: b, values: [b] }
  - { name: c, values: [c], rates: [{ target: 3, per: 1s, burst: 3 }, { target: 1, per: 1s, burst: 9 }] }
  - { name: d, values: [d], rates: [{ target: 100, per: 1s, burst: 1 }] }
  - { name: e, values: [e], rates: [{ target: 2, per: 1m, burst: 4 }] }
";

/// Fast enough that a Redis under test moves from grant to refusal and back within a run.
pub const BRISK: &str = "
rates: [{ target: 20000, per: 1s, burst: 20 }, { target: 15000, per: 1s, burst: 60 }]
contract: [{ requests: 40000, per: 1s }]
classes:
  - { name: otp, values: [otp] }
  - { name: marketing, values: [marketing], rates: [{ target: 9000, per: 1s, burst: 9 }] }
";

/// With a leased fallback, so short that a run meets all there is to it.
const LEASED: &str = "
rates: [{ target: 90, per: 1s, burst: 5 }, { target: 4500, per: 1m, burst: 50 }]
contract: [{ requests: 100, per: 1s }, { requests: 6000, per: 1m }]
classes:
  - { name: otp, values: [otp] }
  - { name: marketing, values: [marketing], rates: [{ target: 60, per: 1s, burst: 5 }] }
fallback: { lease: 500ms, forget_after: 2s }
";

/// One an hour: what a test sees does not depend on how fast it runs.
pub const HOURLY: &str = "
rates: [{ target: 1, per: 1h, burst: 5 }]
contract: [{ requests: 10, per: 1h }]
classes:
  - { name: otp, values: [otp] }
  - { name: marketing, values: [marketing], rates: [{ target: 1, per: 1h, burst: 3 }] }
";

pub const ALL: [(&str, &str); 7] = [
    ("sample", SAMPLE),
    ("several", SEVERAL),
    ("slow", SLOW),
    ("fast", FAST),
    ("many", MANY),
    ("brisk", BRISK),
    ("leased", LEASED),
];

/// The only limit of a policy made of these parts, named so.
pub fn account(name: &str, parts: &str) -> Account {
    let class = parts.split("name: ").nth(1).unwrap_or_default();
    let class = class.split([',', '\n']).next().unwrap_or_default();
    let limit = parts.trim().replace('\n', "\n    ");
    let document = format!(
        "version: 1
gateways: {{ max: 3 }}
decider: {{ timeout: 50ms }}
path_jitter: 20ms
limits:
  - name: {name}
    match: {{ hosts: [sms.example.com] }}
    priority: {{ header: x-priority, default: {class} }}
    {limit}
"
    );
    let policy =
        document::parse(&document).unwrap_or_else(|error| panic!("{name}: {error}")).policy;
    decider::store::accounts(&policy).remove(0)
}
