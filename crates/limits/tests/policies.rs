//! Which documents make a policy, seen from outside: the files of `testdata/policies`, and the edges of
//! every rule, each from both sides.

use std::{fs, path::Path};

use limits::{gcra::Rate, policy::Policy, units::Micros};
use serde_json::{Value, json};

fn documents(folder: &str) -> Vec<(String, String, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/policies");
    let files = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let read = |file: std::path::PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let value = serde_saphyr::from_str(&text).unwrap();
        (file.display().to_string(), text, value)
    };
    let documents: Vec<_> = files.map(read).collect();
    assert!(!documents.is_empty(), "{folder} is empty");
    documents
}

#[test]
fn what_is_rejected_is_rejected_in_the_words_its_file_opens_with() {
    for (file, text, document) in documents("rejected") {
        let first = text.lines().next().unwrap_or_default();
        let said = Policy::parse(&document).unwrap_err().to_string();
        assert_eq!(first, format!("# expect: {said}"), "{file}");
    }
}

#[test]
fn what_is_accepted_has_an_identity_of_its_own() {
    let mut hashes = Vec::new();
    for (file, _, document) in documents("accepted") {
        let policy = Policy::parse(&document).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_hex = policy.hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_hex && policy.hash.len() == 16, "{}", policy.hash);
        hashes.push((policy.hash, document.to_string()));
    }
    hashes.sort();
    for pair in hashes.windows(2) {
        assert_eq!(pair[0].0 == pair[1].0, pair[0].1 == pair[1].1, "{pair:?}");
    }
}

/// The incident's.
fn document() -> Value {
    json!({
        "version": 1,
        "gateways": { "max": 2 },
        "decider": { "timeout": "50ms" },
        "path_jitter": "20ms",
        "limits": [{
            "name": "sms",
            "match": { "hosts": ["sms.example.com"], "path_prefixes": ["/v1"], "methods": ["POST"] },
            "contract": [{ "requests": 100, "per": "1s" }],
            "rates": [{ "target": 90, "per": "1s", "burst": 5 }],
            "priority": { "header": "x-priority", "default": "marketing" },
            "classes": [
                { "name": "otp", "values": ["otp"] },
                {
                    "name": "marketing",
                    "values": ["bulk"],
                    "rates": [{ "target": 70, "per": "1s", "burst": 5 }],
                },
            ],
        }],
    })
}

/// The document with `value` at `pointer`.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = document();
    *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    document
}

fn check(pointer: &str, value: Value, allowed: bool) {
    let parsed = Policy::parse(&with(pointer, value.clone()));
    assert_eq!(parsed.is_ok(), allowed, "{pointer} = {value}: {parsed:?}");
}

#[test]
fn texts_are_held_to_their_rule_up_to_its_edge() {
    let (host, value) = ("/limits/0/match/hosts/0", "/limits/0/classes/0/values/0");
    let (name, header) = ("/limits/0/name", "/limits/0/priority/header");
    let (method, prefix) = ("/limits/0/match/methods/0", "/limits/0/match/path_prefixes/0");
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (name, &["a", "a-1", &"a".repeat(63)], &["", "A", "a_b", "a.b", "a b", &"a".repeat(64)]),
        (host, &["a", "a-b_c.example", "SMS.example"], &["", "a..b", ".a", "a:1", "*.a", "a b"]),
        (method, &["POST", "X"], &["", "Post", "POST1", "A B"]),
        (value, &["otp", "a b", "~!"], &["", " otp", "otp ", "\u{7f}", "ö", "a\tb"]),
        (prefix, &["/", "/v1/x"], &["", "v1", " /"]),
        (
            header,
            &["x-priority", "X_Class-1", "xaccept", "tea", "content"],
            &[
                "",
                "x:y",
                "x y",
                "Host",
                "te",
                "via",
                "Accept-Language",
                "content-type",
                "x-envoy-a",
            ],
        ),
    ];
    for (pointer, allowed, refused) in cases {
        allowed.iter().for_each(|text| check(pointer, json!(text), true));
        refused.iter().for_each(|text| check(pointer, json!(text), false));
    }
}

#[test]
fn numbers_and_times_are_held_to_their_range_up_to_its_edge() {
    let cases = [
        ("/version", json!(1), json!(2)),
        ("/gateways/max", json!(1), json!(0)),
        ("/gateways/max", json!(1_000), json!(1_001)),
        ("/decider/timeout", json!("5ms"), json!("4ms")),
        ("/decider/timeout", json!("5s"), json!("5001ms")),
        ("/path_jitter", json!("0ms"), json!("1001ms")),
        ("/limits/0/rates/0/burst", json!(1), json!(0)),
        ("/limits/0/contract/0/requests", json!(97), json!(96)),
        ("/limits/0/rates/0/target", json!(93), json!(94)),
        ("/limits/0/rates/0/target", json!(70), json!(69)),
        ("/limits/0/classes/1/rates/0/target", json!(90), json!(91)),
        ("/limits/0/classes/1/rates/0/burst", json!(1_000_000), json!(1_000_001)),
        ("/limits/0/classes/1/rates/0/per", json!("24h"), json!("25h")),
        ("/limits/0/priority/default", json!("otp"), json!("bulk")),
    ];
    for (pointer, allowed, refused) in cases {
        check(pointer, allowed, true);
        check(pointer, refused, false);
    }
    // 366 days for 366 requests, one a day.
    let daily = |burst: u32| json!([{ "target": 1, "per": "24h", "burst": burst }]);
    check("/limits/0/classes/1/rates", daily(366), true);
    let said = Policy::parse(&with("/limits/0/classes/1/rates", daily(367))).unwrap_err();
    assert!(said.message.contains("allowed: at most 366 with"), "{said}");
}

#[test]
fn a_target_at_the_contract_needs_a_reason_and_one_above_has_none() {
    let target = |target: u32, reason: Option<&str>| {
        let mut document = with("/limits/0/rates/0/target", json!(target));
        document["limits"][0]["unsafe"] = json!(reason);
        Policy::parse(&document).map(|policy| policy.limits[0].unsafe_reason.clone())
    };
    assert!(target(100, None).is_err());
    assert_eq!(target(100, Some("tried")), Ok(Some("tried".to_owned())));
    assert!(target(101, Some("tried")).is_err());
    assert!(target(100, Some(" ")).is_err());
    // The same rates, said per minute.
    let rates = |target: u32| json!([{ "target": target, "per": "1m", "burst": 5 }]);
    let mut document = with("/limits/0/rates", rates(6_000));
    document["limits"][0]["unsafe"] = json!("tried");
    document["limits"][0]["classes"][1]["rates"] = rates(6_000);
    assert!(Policy::parse(&document).is_ok());
    document["limits"][0]["classes"][1]["rates"] = rates(6_001);
    assert!(Policy::parse(&document).is_err(), "a cap above the target");
    document["limits"][0]["rates"] = rates(6_001);
    assert!(Policy::parse(&document).is_err(), "a target above the contract");
}

#[test]
fn a_list_may_have_64_entries_and_no_more() {
    let hosts = |count: u32| (0..count).map(|i| json!(format!("h{i}"))).collect::<Value>();
    check("/limits/0/match/hosts", hosts(64), true);
    check("/limits/0/match/hosts", hosts(65), false);
    check("/limits/0/match/hosts", hosts(0), false);
    check("/limits/0/match/methods", json!([]), true);
}

/// Two limits on one host, told apart by path or method or not at all.
#[test]
fn no_request_belongs_to_two_limits() {
    let two = |change: fn(&mut Value)| {
        let mut document = document();
        let mut other = document["limits"][0].clone();
        other["name"] = json!("other");
        change(&mut other["match"]);
        document["limits"].as_array_mut().unwrap().push(other);
        Policy::parse(&document).map(drop).map_err(|error| error.to_string())
    };
    let overlap = "limits[1]: match overlaps with limit `sms` on host `sms.example.com`";
    let told_apart: [fn(&mut Value); 3] = [
        |m| m["hosts"] = json!(["mms.example.com"]),
        |m| m["path_prefixes"] = json!(["/v2", "/v3"]),
        |m| m["methods"] = json!(["GET"]),
    ];
    let overlapping: [fn(&mut Value); 6] = [
        |_| {},
        |m| m["path_prefixes"] = json!(["/v2", "/v1/messages"]),
        |m| m["path_prefixes"] = json!(["/"]),
        |m| m["path_prefixes"] = json!([]),
        |m| m["methods"] = json!(["GET", "POST"]),
        |m| m["methods"] = json!([]),
    ];
    for change in told_apart {
        assert_eq!(two(change), Ok(()));
    }
    for change in overlapping {
        let said = two(change).unwrap_err();
        assert!(said.starts_with(overlap), "{said}");
    }
}

#[test]
fn a_policy_finds_its_limits_and_classes_by_name() {
    let policy = Policy::parse(&document()).unwrap();
    let limit = policy.limit("sms").unwrap();
    assert_eq!(limit.rates, [Rate { target: 90, per: Micros::SECOND, burst: 5 }]);
    assert_eq!(policy.limit("mms"), None);
    assert_eq!(
        ["otp", "marketing", "bulk"].map(|name| limit.class(name)),
        [Some(0), Some(1), None]
    );
    assert_eq!(limit.priority.default, 1);
    // (100 − 96) ÷ 2 gateways = 2 in 1.02 s.
    let share = policy.headroom(limit).unwrap();
    assert_eq!(share.emission_interval(), Micros(510_001));
}

#[test]
fn the_hash_is_fnv_1a_of_the_document_with_sorted_keys() {
    // Computed by another program.
    assert_eq!(Policy::parse(&document()).unwrap().hash, "9f9cf40d5e4c6754");
}
