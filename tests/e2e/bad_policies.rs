//! A policy that cannot be obeyed safely is refused before it does harm, in the words of
//! `weir check`: by an Envoy that starts, and by one that runs, which keeps what it had.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::Stack;
use crate::harness::files::{Template, yaml};
use crate::harness::stack::{program, root, scratch, write_scratch};
use crate::harness::{eventually, ms};

const REJECTED: &str = "testdata/policies/rejected";
/// An Envoy costs half a second of a core to start: that many of the cases get one of their own.
const STARTS: usize = 4;

struct Case {
    name: String,
    file: PathBuf,
    /// From its first line, `# expect: MESSAGE`.
    expected: String,
    /// The same document for the filter.
    document: Value,
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
        document: serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}")),
        name,
    }
}

/// The sample gateway with this policy.
fn gateway_with(policy: &Value) -> Template {
    let mut template = Template::sample();
    let plugin = json!({ "decider": { "cluster": "weir" }, "policy": policy }).to_string();
    template.http_filters()[0]["typed_config"]["config"]["configuration"]["value"] = json!(plugin);
    template
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn check_refuses_every_rejected_policy_and_says_why() {
    for case in cases() {
        let output = Command::new(program("weir")).arg("check").arg(&case.file).output();
        let output = output.expect("weir runs");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{}: {said}", case.name);
        assert!(said.contains(&case.expected), "{}: {:?} in {said}", case.name, case.expected);
        assert_eq!(said.lines().count(), 1, "{}: {said}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_does_not_start_with_a_rejected_policy() {
    let cases = cases();
    // Which Envoy the stacks run, a stack tells.
    let envoy = Stack::up(&[]).program_of("gateway-0");
    let validate = |policy: &Value| {
        let config = write_scratch("envoy.yaml", &gateway_with(policy).0.to_string());
        let mut command = Command::new(&envoy);
        command.args(["--mode", "validate", "--log-level", "error", "-c", &config]);
        command.current_dir(root()).output().expect("Envoy runs")
    };
    for case in cases.iter().step_by(cases.len() / STARTS) {
        let output = validate(&case.document);
        let said = said(&output);
        assert!(!output.status.success(), "{}: Envoy starts", case.name);
        assert!(said.contains(&case.expected), "{}: {:?} in {said}", case.name, case.expected);
    }
    let sample = validate(&yaml("envoy/policy.yaml"));
    assert!(sample.status.success(), "the sample: {}", said(&sample));
}

/// Listeners that a running Envoy reads from a file, whenever the file is replaced.
struct Updates {
    file: PathBuf,
    number: u32,
}

impl Updates {
    fn new(template: &mut Template) -> Self {
        let mut updates = Self { file: scratch("listeners.json"), number: 0 };
        updates.replace(&[]);
        let path = json!({ "path": updates.file });
        template.0["dynamic_resources"] = json!({ "lds_config": { "path_config_source": path } });
        updates
    }

    fn replace(&mut self, listeners: &[Value]) {
        self.number += 1;
        let text = json!({ "version_info": self.number.to_string(), "resources": listeners });
        let next = self.file.with_extension("next");
        std::fs::write(&next, text.to_string()).expect("a scratch file can be written");
        std::fs::rename(&next, &self.file).expect("a scratch file can be replaced");
    }

    /// Offers a listener with this policy; true if Envoy took it.
    async fn offer(&mut self, stack: &Stack, policy: &Value) -> bool {
        let counted = async || {
            let stats = stack.stats(0).await;
            let of = |name| stats.get(&format!("listener_manager.lds.{name}")).copied();
            (of("update_success").unwrap_or(0), of("update_rejected").unwrap_or(0))
        };
        let before = counted().await;
        let mut listener = gateway_with(policy).listener().clone();
        listener["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
        listener["name"] = json!("offered");
        listener["address"]["socket_address"]["port_value"] = json!(0);
        // The template's module path is the repository's; Envoy runs there.
        self.replace(&[listener]);
        let after = eventually(ms(5_000), "Envoy has read the update", async || {
            let now = counted().await;
            (now != before).then_some(now)
        })
        .await;
        after.0 > before.0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_envoy_refuses_every_rejected_policy_and_keeps_what_it_had() {
    let mut template = Template::sample();
    let mut updates = Updates::new(&mut template);
    let stack = Stack::up(&["--envoy", &template.write(), "--workers", "1"]);
    for case in cases() {
        let logged = stack.log("gateway-0").len();
        assert!(!updates.offer(&stack, &case.document).await, "{}: Envoy takes it", case.name);
        let log = stack.log("gateway-0").split_off(logged);
        assert!(log.contains(&case.expected), "{}: {:?} in {log}", case.name, case.expected);
    }
    assert_eq!(stack.send("otp").await.status, 200, "what it had still serves");
    assert!(updates.offer(&stack, &yaml("envoy/policy.yaml")).await, "the sample is taken");
    stack.assert_filter_is_well().await;
}
