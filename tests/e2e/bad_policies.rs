//! A policy that cannot be obeyed safely is refused before it does harm: by `weir check`, and by the
//! filter when Envoy starts, in the same words.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::files::Template;
use crate::harness::stack::{program, root, write_scratch};

const REJECTED: &str = "testdata/policies/rejected";
/// Envoys that start at the same time.
const AT_ONCE: usize = 2;

struct Case {
    name: String,
    file: PathBuf,
    /// From its first line, `# expect: MESSAGE`.
    expected: String,
    /// The same document for the filter; none where it is no YAML, which only a file can be.
    document: Option<Value>,
}

fn cases() -> Vec<Case> {
    let files = std::fs::read_dir(root().join(REJECTED)).expect("the rejected policies");
    let mut cases: Vec<_> = files.map(|file| case(&file.expect("a file").path())).collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() >= 30, "only {} rejected policies", cases.len());
    cases
}

fn case(file: &Path) -> Case {
    let text = std::fs::read_to_string(file).expect("a policy file");
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let first = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
    let expected = first.unwrap_or_else(|| panic!("{name} does not begin with `# expect: `"));
    Case {
        file: file.to_owned(),
        expected: expected.to_owned(),
        document: serde_saphyr::from_str(&text).ok(),
        name,
    }
}

fn all_output(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// What is wrong with how this case is refused.
fn wrong(case: &Case, envoy: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |by: &str, output: &Output| {
        let said = all_output(output);
        if output.status.success() {
            wrong.push(format!("{}: {by} accepts it", case.name));
        } else if !said.contains(&case.expected) {
            let said: Vec<_> = said.lines().take(3).collect();
            wrong.push(format!("{}: {by}: no {:?} in {said:#?}", case.name, case.expected));
        }
    };
    let output = Command::new(program("weir")).arg("check").arg(&case.file).output();
    check("weir check", &output.expect("weir runs"));
    if let Some(document) = &case.document {
        let config = write_scratch("envoy.yaml", &gateway_with(document).to_string());
        let mut command = Command::new(envoy);
        command.args(["--mode", "validate", "--log-level", "error", "-c", &config]);
        command.args(["--component-log-level", "wasm:error"]).current_dir(root());
        check("Envoy", &command.output().expect("Envoy runs"));
    }
    wrong
}

/// The sample gateway with this policy.
fn gateway_with(policy: &Value) -> Value {
    let mut template = Template::sample();
    let plugin = json!({ "decider": { "cluster": "weir" }, "policy": policy }).to_string();
    template.http_filters()[0]["typed_config"]["config"]["configuration"]["value"] = json!(plugin);
    template.0
}

fn refused_by_all(cases: &[Case], envoy: &Path) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.extend(wrong(case, envoy));
        }
        found
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[tokio::test]
async fn every_rejected_policy_is_refused_by_check_and_filter_in_the_same_words() {
    // Which Envoy the stacks run, a stack tells.
    let envoy = crate::harness::Stack::up(&[]).program_of("gateway-0");
    let wrong = refused_by_all(&cases(), &envoy);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_sample_policy_is_accepted_by_check_and_filter() {
    let envoy = crate::harness::Stack::up(&[]).program_of("gateway-0");
    let sample = Case {
        name: "the sample".to_owned(),
        file: root().join("envoy/policy.yaml"),
        expected: String::new(),
        document: Some(crate::harness::files::yaml("envoy/policy.yaml")),
    };
    let wrong = wrong(&sample, &envoy);
    assert_eq!(wrong, ["the sample: weir check accepts it", "the sample: Envoy accepts it"]);
}
