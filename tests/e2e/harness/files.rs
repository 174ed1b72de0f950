//! The sample configuration and policy, changed for one test.

use serde_json::{Value, json};

use super::stack::{root, write_scratch};

const HCM: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// Envoy's configuration as `xtask up --envoy` takes it.
pub struct Template(pub Value);

impl Template {
    pub fn sample() -> Self {
        Self(yaml("envoy/envoy.yaml"))
    }

    pub fn listener(&mut self) -> &mut Value {
        &mut self.0["static_resources"]["listeners"][0]
    }

    pub fn hcm(&mut self) -> &mut Value {
        self.0.pointer_mut(HCM).expect("the sample's connection manager")
    }

    pub fn http_filters(&mut self) -> &mut Vec<Value> {
        self.hcm()["http_filters"].as_array_mut().expect("http_filters")
    }

    pub fn routes(&mut self) -> &mut Value {
        &mut self.hcm()["route_config"]
    }

    pub fn clusters(&mut self) -> &mut Vec<Value> {
        self.0["static_resources"]["clusters"].as_array_mut().expect("clusters")
    }

    pub fn cluster(&mut self, name: &str) -> &mut Value {
        let mut all = self.clusters().iter_mut();
        all.find(|cluster| cluster["name"] == name).unwrap_or_else(|| panic!("no cluster {name}"))
    }

    /// The file to give to `xtask up`; JSON is YAML too.
    pub fn write(&self) -> String {
        write_scratch("envoy.yaml", &self.0.to_string())
    }
}

/// The sample policy after `change`, as a file.
pub fn policy(change: impl FnOnce(&mut Value)) -> String {
    let mut policy = yaml("envoy/policy.yaml");
    change(&mut policy);
    write_scratch("policy.yaml", &policy.to_string())
}

/// The sample policy with rates that no test reaches that is about something else.
pub fn roomy_policy() -> String {
    policy(make_roomy)
}

pub fn make_roomy(policy: &mut Value) {
    let limit = &mut policy["limits"][0];
    limit["contract"] = json!([{ "requests": 10_000, "per": "1s" }]);
    limit["rates"] = json!([{ "target": 5_000, "per": "1s", "burst": 100 }]);
    limit["classes"][1]["rates"] = json!([{ "target": 2_000, "per": "1s", "burst": 50 }]);
}

/// The sample policy with a decider that may take as long as a test needs to look around.
pub fn patient_policy() -> String {
    policy(|policy| policy["decider"] = json!({ "timeout": "2s" }))
}

pub fn yaml(file: &str) -> Value {
    let text = std::fs::read_to_string(root().join(file)).expect("a file of the repository");
    serde_saphyr::from_str(&text).expect("YAML")
}
