//! `testdata/policies`: what is refused, in which words, and what is accepted.
//!
//! A rejected file opens with `# expect: ` and the message; the filter's tests read the same files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use decider::document;
use limits::policy::Policy;

/// What distinguishes the messages of the rules.
const PHRASES: [&str; 19] = [
    "is not a mapping; allowed fields: ",
    "unknown field `",
    "` is missing",
    "is not a list",
    "entries; allowed: at most 64",
    "is empty; allowed: at least one",
    "is not a text",
    "is not allowed; allowed: ",
    "the only one there is",
    "is not a whole number from ",
    "is not a duration like 50ms or 10m",
    "is not a duration; allowed: ",
    "is out of range; allowed: ",
    "take more than a year to refill; allowed: ",
    "is taken; allowed: ",
    "is not a class; allowed: ",
    "belongs to class",
    "match overlaps with limit",
    "less than one request for each of 4 gateways",
];
/// Refusals that look alike and differ in what they allow.
const OVER_THE_CONTRACT: [&str; 4] = [
    "can put 118 requests into 1s, over the contract of 100; allowed: a target of at most 93 per 1s with this burst",
    "with this burst, or `unsafe: <reason>` on the limit",
    "allowed: a burst below 100",
    "is above the limit's own target; allowed: ",
];
/// Places in the sources of `limits::policy` that make an error. More of them: one more rule, that
/// needs a phrase above and a file.
const ERRORS_MADE: usize = 24;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = root().join("testdata/policies").join(folder);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn weir(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_weir"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        program.env_remove(name);
    }
    program.args(arguments).output().unwrap()
}

fn expected(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let first = text.lines().next().unwrap_or_default();
    first
        .strip_prefix("# expect: ")
        .unwrap_or_else(|| panic!("{} does not open with `# expect: `", file.display()))
        .to_owned()
}

#[test]
fn what_is_rejected_is_rejected_in_the_words_it_expects() {
    for file in files("rejected") {
        let shown = file.display().to_string();
        for arguments in [&["check", &shown][..], &["check", "--policy", &shown, "--json"][..]] {
            let output = weir(arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(said, format!("{shown}: {}\n", expected(&file)));
            assert_eq!(output.status.code(), Some(2), "{shown}");
            assert_eq!(output.stdout, b"", "{shown}");
        }
    }
}

#[test]
fn serve_and_render_reject_in_the_same_words() {
    let file = root().join("testdata/policies/rejected/target-over-contract.yaml");
    let shown = file.display().to_string();
    for arguments in
        [&["serve", "--policy", &shown][..], &["render", "--policy", &shown, "filter"][..]]
    {
        let output = weir(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("{shown}: {}\n", expected(&file)), "{arguments:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// The filter parses the document as JSON.
#[test]
fn json_is_rejected_in_the_words_of_yaml() {
    for file in files("rejected") {
        let value: serde_json::Value = document::yaml(&fs::read_to_string(&file).unwrap()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&value.to_string()).unwrap();
        assert_eq!(Policy::parse(&json).unwrap_err().to_string(), expected(&file));
    }
}

#[test]
fn every_rule_has_a_rejected_file() {
    let messages: Vec<String> = files("rejected").iter().map(|file| expected(file)).collect();
    for phrase in PHRASES.iter().chain(&OVER_THE_CONTRACT) {
        assert!(messages.iter().any(|message| message.contains(phrase)), "no file for `{phrase}`");
    }
    let made: usize = sources().iter().map(|text| errors_made(text)).sum();
    assert_eq!(made, ERRORS_MADE, "a rule came or went: see PHRASES, and write its file");
}

/// Each field that the rules read is the subject of a rejected file, or is missing in one.
#[test]
fn every_field_has_a_rejected_file() {
    let messages: Vec<String> = files("rejected").iter().map(|file| expected(file)).collect();
    let rules = sources().concat();
    let mut fields = BTreeSet::new();
    for getter in [".required(\"", ".optional(\"", ".items(\""] {
        let found = rules.split(getter).skip(1);
        fields.extend(found.map(|rest| rest.split('"').next().unwrap_or_default()));
    }
    assert!(fields.len() > 20, "{fields:?}");
    for field in fields {
        let is_subject = |message: &String| {
            let path = message.split(": ").next().unwrap_or_default();
            let named = path.split(['.', '[']).any(|part| part == field);
            named || message.contains(&format!("`{field}` is missing"))
        };
        assert!(messages.iter().any(is_subject), "no file about `{field}`");
    }
}

/// The code of `limits::policy`, without its tests.
fn sources() -> Vec<String> {
    let folder = root().join("crates/limits/src/policy");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let code = |text: String| text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
    ["reader.rs", "rules.rs"].map(read).map(code).to_vec()
}

fn errors_made(text: &str) -> usize {
    [".error(", ".not(", "PolicyError {\n"].iter().map(|made| text.matches(made).count()).sum()
}

#[test]
fn what_is_accepted_is_checked_and_rendered() {
    for file in files("accepted") {
        let shown = file.display().to_string();
        let output = weir(&["check", &shown]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shown}: {:?}", output.stderr);
        let policy = document::read(&file).unwrap().policy;
        assert!(said.contains(&policy.hash), "{said}");
        for limit in &policy.limits {
            assert!(said.contains(&format!("limit {}\n", limit.name)), "{said}");
        }

        let output = weir(&["check", "--json", &shown]);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["hash"], policy.hash, "{shown}");
        assert_eq!(said["limits"].as_array().unwrap().len(), policy.limits.len(), "{shown}");

        let output = weir(&["render", "--policy", &shown, "filter", "--cluster", "c"]);
        let rendered: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(rendered["decider"]["cluster"], "c");
        assert_eq!(rendered["decider"]["authority"], "weir");
        assert_eq!(Policy::parse(&rendered["policy"]).unwrap(), policy, "{shown}: same hash too");
    }
}

/// Only what both read the same way: the hash is how they know that they run one policy.
#[test]
fn the_hash_does_not_depend_on_how_the_document_is_written() {
    let yaml = document::parse(&fs::read_to_string(&files("accepted")[0]).unwrap()).unwrap();
    let json = document::parse(&format!("{:#}", yaml.value)).unwrap();
    assert_eq!(yaml.policy.hash, json.policy.hash);
}

/// Not YAML at all, or YAML that says two things: nothing that the filter could be given.
#[test]
fn what_is_no_yaml_is_refused_on_one_line() {
    for (text, part) in [("limits: [", "is not YAML: "), ("version: 1\nversion: 1\n", "duplicate")]
    {
        let refused = document::parse(text).unwrap_err().to_string();
        assert!(refused.contains(part) && !refused.contains('\n'), "{refused}");
    }
}

#[test]
fn a_missing_policy_file_is_refused_with_its_name() {
    let output = weir(&["check", "no-such-file.yaml"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("no-such-file.yaml: cannot be read: "), "{said}");
    assert_eq!(output.status.code(), Some(2));
}
