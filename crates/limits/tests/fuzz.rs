//! The parsers of what comes from outside, fed with what nobody would send.
//!
//! Promise: none of them panics, and what one accepts keeps its promises. Some thousand inputs with
//! each `cargo test`, and as many as wished by `PROPTEST_CASES`. An input that fails is made small,
//! printed, and kept in `fuzz.regressions` beside this file, which every later run tries first.

use std::sync::LazyLock;

use limits::{
    Micros,
    policy::{Policy, Throttle},
    retry_after::{PAUSE_MIN, Said, pause},
    wire::{DecideReply, DecideRequest, Refusal, ThrottledReply, ThrottledRequest},
    worst::worst_case,
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, FileFailurePersistence},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// A run of a second or so.
const CASES: u32 = 2_000;

fn config() -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::WithSource("regressions")));
    config
}

/// Everything that a policy may say, and safe.
static POLICY: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "version": 1,
        "gateways": { "max": 2 },
        "decider": { "timeout": "50ms" },
        "path_jitter": "20ms",
        "limits": [{
            "name": "sms",
            "match": { "hosts": ["sms.example.com"], "path_prefixes": ["/v1"], "methods": ["POST"] },
            "contract": [{ "requests": 100, "per": "1s" }, { "requests": 6000, "per": "1m" }],
            "rates": [
                { "target": 60, "per": "1s", "burst": 5 },
                { "target": 3000, "per": "1m", "burst": 5 },
            ],
            "priority": { "header": "x-priority", "default": "marketing" },
            "classes": [
                { "name": "otp", "values": ["otp"], "principals": ["spiffe://a/ns/b/sa/c"] },
                { "name": "marketing", "values": ["marketing", "bulk"],
                  "rates": [{ "target": 40, "per": "1s", "burst": 5 }] },
            ],
            "throttle": { "statuses": [429], "default_pause": "1s", "max_pause": "1h" },
            "fallback": { "lease": "1s", "forget_after": "15m" },
        }],
    })
});

static THROTTLE: LazyLock<Throttle> =
    LazyLock::new(|| Policy::parse(&POLICY).unwrap().limits[0].throttle.clone());

/// Values at the edges of what fields take, and others.
fn value() -> impl Strategy<Value = Value> {
    const TEXTS: [&str; 19] = [
        "",
        "1s",
        "0s",
        "1us",
        "99999999h",
        "18446744073709551615s",
        "-1s",
        "1.5s",
        "é",
        "sms",
        "otp",
        "marketing",
        "GET",
        "/",
        "*.example.com",
        "a:b",
        "\u{0}",
        "x-priority",
        "429",
    ];
    let leaf = prop_oneof![
        select(&TEXTS[..]).prop_map(Value::from),
        select(vec![0, 1, 2, 5, 99, 100, 101, 1_000_000, u64::from(u32::MAX), u64::MAX])
            .prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "\\PC{0,80}".prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(vec!["max", "name", "per", "target", "a"]), inner), 0..4).prop_map(
                |pairs| { pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
            ),
        ]
    })
}

#[derive(Debug, Clone)]
enum Change {
    Replace(Value),
    /// A number becomes another one near it: what is only just unsafe.
    Nudge(i64),
    Remove,
    Twice,
}

fn change() -> impl Strategy<Value = (Index, Change)> {
    let change = prop_oneof![
        value().prop_map(Change::Replace),
        (-60_i64..60).prop_map(Change::Nudge),
        Just(Change::Remove),
        Just(Change::Twice),
    ];
    (any::<Index>(), change)
}

fn pointers(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                pointers(item, format!("{at}/{i}"), all);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                pointers(
                    field,
                    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    all,
                );
            }
        }
        _ => {}
    }
    all.push(at);
}

fn apply(document: &mut Value, place: &Index, change: Change) {
    let mut all = Vec::new();
    pointers(document, String::new(), &mut all);
    if let Change::Nudge(_) = change {
        all.retain(|at| document.pointer(at).is_some_and(Value::is_i64));
    }
    if all.is_empty() {
        return;
    }
    let at = &all[place.index(all.len())];
    match change {
        Change::Replace(value) => *document.pointer_mut(at).unwrap() = value,
        Change::Nudge(by) => {
            let number = document.pointer_mut(at).unwrap();
            *number = number.as_i64().unwrap().saturating_add(by).into();
        }
        Change::Remove | Change::Twice => remove_or_double(document, at, &change),
    }
}

fn remove_or_double(document: &mut Value, at: &str, change: &Change) {
    let Some((parent, last)) = at.rsplit_once('/') else {
        return;
    };
    match (document.pointer_mut(parent), change) {
        (Some(Value::Array(items)), Change::Twice) => {
            let item = items[last.parse::<usize>().unwrap()].clone();
            items.push(item);
        }
        (Some(Value::Array(items)), _) => {
            items.remove(last.parse::<usize>().unwrap());
        }
        (Some(Value::Object(fields)), Change::Remove) => {
            fields.remove(last);
        }
        _ => {}
    }
}

/// What an accepted policy promises, counted from its own numbers; what a refusal does.
fn check_policy(document: &Value) -> Result<bool, TestCaseError> {
    let policy = match Policy::parse(document) {
        Ok(policy) => policy,
        Err(refused) => {
            let text = refused.to_string();
            prop_assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            return Ok(false);
        }
    };
    for limit in policy.limits.iter().filter(|limit| limit.unsafe_reason.is_none()) {
        for window in &limit.contract {
            let worst = worst_case(&limit.rates, window.per, policy.path_jitter);
            prop_assert!(worst <= u64::from(window.requests), "{worst} in {}", window.per);
        }
    }
    prop_assert_eq!(Policy::parse(document).unwrap().hash, policy.hash);
    Ok(true)
}

/// What is understood is written in a way that means the same.
fn check_wire<T>(bytes: &[u8]) -> Result<bool, TestCaseError>
where
    T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let Ok(read) = serde_json::from_slice::<T>(bytes) else {
        return Ok(false);
    };
    let written = serde_json::to_vec(&read).unwrap();
    prop_assert_eq!(serde_json::from_slice::<T>(&written).unwrap(), read);
    Ok(true)
}

fn check_every_wire(bytes: &[u8]) -> Result<bool, TestCaseError> {
    Ok(check_wire::<DecideRequest>(bytes)?
        | check_wire::<DecideReply>(bytes)?
        | check_wire::<ThrottledRequest>(bytes)?
        | check_wire::<ThrottledReply>(bytes)?
        | check_wire::<Refusal>(bytes)?)
}

const MESSAGES: [&str; 5] = [
    r#"{"limit":"sms","policy":"x","gateway":"g","wants":[{"class":"otp","n":1}]}"#,
    r#"{"now_us":1,"granted":[{"class":"otp","n":1}],"wait_us":{"otp":5},"reason":{"otp":"rate"},"penalty_us":0}"#,
    r#"{"limit":"sms","pause_us":1000000,"id":"g/1"}"#,
    r#"{"penalty_us":7}"#,
    r#"{"error":"no"}"#,
];

/// A message with some bytes cut out and others put in.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let pieces =
        vec!["9", "-", ".", "e9", "\"", "null", "{", "[", "]}", ",", "\\u0000", "\u{e9}", " "];
    let put = prop_oneof![
        select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        vec(any::<u8>(), 0..6),
    ];
    let cut = (any::<Index>(), 0_usize..6, put);
    (select(&MESSAGES[..]), vec(cut, 0..4)).prop_map(|(message, cuts)| {
        let mut bytes = message.as_bytes().to_vec();
        for (place, length, put) in cuts {
            let start = place.index(bytes.len() + 1);
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, put);
        }
        bytes
    })
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        "[0-9]{1,22}",
        "[0-9]{0,12}\\.[0-9]{0,12}",
        "([0-9]{1,20}(h|m|s|ms|us|ns|d)?){1,4}",
        "(Sun|mon|TUE), [0-9]{2} (Jan|feb|XXX) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|UTC|)",
        "(Sunday), [0-9]{2}-Nov-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        "Sun Nov ( |[0-3])[0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}",
        "\\PC{0,300}",
    ];
    prop_oneof![
        vec(part, 1..4).prop_map(|parts| parts.join(", ").into_bytes()),
        vec(any::<u8>(), 0..300),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_policy_with_something_changed_is_safe_or_refused(changes in vec(change(), 1..4)) {
        let mut document = POLICY.clone();
        for (place, change) in changes {
            apply(&mut document, &place, change);
        }
        check_policy(&document)?;
    }

    #[test]
    fn any_document_is_a_policy_or_refused(document in value()) {
        check_policy(&document)?;
    }

    #[test]
    fn any_message_is_understood_the_same_twice_or_refused(bytes in message()) {
        check_every_wire(&bytes)?;
    }

    #[test]
    fn any_bytes_are_understood_the_same_twice_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        check_every_wire(&bytes)?;
    }

    #[test]
    fn any_retry_after_is_a_legal_pause_and_another_value_never_shortens_it(
        fields in vec(field(), 0..5),
        more in field(),
        date in proptest::option::of(field()),
        now in any::<u64>(),
    ) {
        let (now, date) = (Micros(now), date.as_deref());
        let values = || fields.iter().map(Vec::as_slice);
        let (first, said) = pause(values(), date, now, &THROTTLE);
        prop_assert!((PAUSE_MIN..=THROTTLE.max_pause).contains(&first), "{first}");
        prop_assert_eq!(said == Said::Nothing, fields.is_empty());
        let (second, _) = pause(values().chain([more.as_slice()]), date, now, &THROTTLE);
        prop_assert!(said != Said::Time || second >= first, "{second} after {first}");
    }
}

/// Inputs of which none is accepted, or all, would prove nothing.
#[test]
fn what_is_tried_is_accepted_now_and_then() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut policies, mut messages, mut times) = (0, 0, 0);
    for _ in 0..1_000 {
        let (place, change) = change().new_tree(&mut runner).unwrap().current();
        let mut document = POLICY.clone();
        apply(&mut document, &place, change);
        policies += u32::from(check_policy(&document).unwrap());
        let bytes = message().new_tree(&mut runner).unwrap().current();
        messages += u32::from(check_every_wire(&bytes).unwrap());
        let field = field().new_tree(&mut runner).unwrap().current();
        times += u32::from(pause([field.as_slice()], None, Micros(0), &THROTTLE).1 == Said::Time);
    }
    for (what, accepted) in [("policies", policies), ("messages", messages), ("times", times)] {
        assert!((50..950).contains(&accepted), "{accepted} of 1000 {what} were accepted");
    }
}
