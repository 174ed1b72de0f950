//! From a template (by default `envoy/envoy.yaml`) to the configuration of one gateway: its own
//! ports, where its decider and provider listen, and the policy. Everything else stays as it is,
//! so that what runs here is what the template says.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::paths;

const WASM_FILTER: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const STRING_VALUE: &str = "type.googleapis.com/google.protobuf.StringValue";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    pub fn loopback(port: u16) -> Self {
        let host = "127.0.0.1".to_owned();
        Self { host, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            let host = (!host.is_empty()).then(|| host.to_owned())?;
            Some(Self { host, port })
        });
        parsed.ok_or_else(|| "expected HOST:PORT, such as 127.0.0.1:9000".to_owned())
    }
}

/// What one gateway is connected to.
pub struct Wiring<'a> {
    pub egress: &'a Endpoint,
    pub admin: &'a Endpoint,
    pub decider: &'a Endpoint,
    pub provider: &'a Endpoint,
    /// Configuration for every filter whose `root_id` is `weir`.
    pub plugin: Option<&'a str>,
}

pub fn read(template: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(template)
        .with_context(|| format!("cannot read {}", template.display()))?;
    let config: Value = serde_saphyr::from_str(&text)
        .with_context(|| format!("{} is not YAML", template.display()))?;
    if !config["static_resources"].is_object() {
        bail!("{} has no static_resources", template.display());
    }
    Ok(config)
}

/// The plugin configuration of each weir filter; empty text where there is none.
pub fn weir_configurations(template: &Value) -> Vec<String> {
    let mut found = Vec::new();
    // The walk wants to change things; this one only looks at a copy.
    for_each_wasm_config(&mut template.clone(), &mut |config| {
        if is_weir(config) {
            let text = config["configuration"]["value"].as_str();
            found.push(text.unwrap_or_default().to_owned());
        }
    });
    found
}

/// Clusters `weir` and `provider` are connected if the template has them; a listener `egress` it
/// must have.
pub fn wire(mut config: Value, wiring: &Wiring) -> Result<Value> {
    let listener = named(&mut config, "listeners", "egress").next();
    let listener = listener.context("it has no listener named `egress`")?;
    listener["address"] = socket_address(wiring.egress);
    config["admin"]["address"] = socket_address(wiring.admin);
    for (name, endpoint) in [("weir", wiring.decider), ("provider", wiring.provider)] {
        for cluster in named(&mut config, "clusters", name) {
            connect(cluster, endpoint)
                .with_context(|| format!("its cluster `{name}` cannot be connected"))?;
        }
    }
    for_each_wasm_config(&mut config, &mut |filter| {
        make_path_absolute(filter);
        if let (Some(plugin), true) = (wiring.plugin, is_weir(filter)) {
            filter["configuration"] = json!({ "@type": STRING_VALUE, "value": plugin });
        }
    });
    Ok(config)
}

fn named<'a>(
    config: &'a mut Value,
    kind: &str,
    name: &'a str,
) -> impl Iterator<Item = &'a mut Value> {
    let list = config["static_resources"][kind].as_array_mut();
    let all = list.into_iter().flatten();
    all.filter(move |item| item["name"] == name)
}

fn socket_address(endpoint: &Endpoint) -> Value {
    json!({ "socket_address": { "address": endpoint.host, "port_value": endpoint.port } })
}

fn connect(cluster: &mut Value, endpoint: &Endpoint) -> Result<()> {
    // A name has to be looked up, an address must not be.
    if endpoint.host.parse::<std::net::IpAddr>().is_err() {
        cluster["type"] = json!("STRICT_DNS");
    }
    let address =
        cluster.pointer_mut("/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address");
    match address {
        Some(address) => *address = socket_address(endpoint),
        None => bail!("it has no endpoint"),
    }
    Ok(())
}

/// Calls `change` with the plugin configuration of every Wasm filter, wherever it stands.
fn for_each_wasm_config(value: &mut Value, change: &mut impl FnMut(&mut Value)) {
    if value.get("@type").is_some_and(|of| of == WASM_FILTER) {
        if let Some(config) = value.get_mut("config") {
            change(config);
        }
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_wasm_config(item, change)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| for_each_wasm_config(field, change))
        }
        _ => {}
    }
}

fn is_weir(config: &Value) -> bool {
    config["root_id"] == "weir"
}

/// A template names modules from the repository's root; a gateway may run anywhere.
fn make_path_absolute(config: &mut Value) {
    if let Some(file) = config.pointer_mut("/vm_config/code/local/filename")
        && let Some(path) = file.as_str()
    {
        *file = json!(paths::root().join(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        read(&paths::root().join("envoy/envoy.yaml")).unwrap()
    }

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    fn wired(template: Value, plugin: Option<&str>) -> Result<Value> {
        wire(
            template,
            &Wiring {
                egress: &endpoint("127.0.0.1:1"),
                admin: &endpoint("127.0.0.1:2"),
                decider: &endpoint("127.0.0.1:3"),
                provider: &endpoint("provider.example.com:4"),
                plugin,
            },
        )
    }

    fn wasm_config(config: &Value) -> Value {
        let mut found = Vec::new();
        for_each_wasm_config(&mut config.clone(), &mut |c| found.push(c.clone()));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn the_sample_is_connected() {
        let config = wired(sample(), Some("told")).unwrap();
        let listener = &config["static_resources"]["listeners"][0];
        assert_eq!(listener["address"]["socket_address"]["port_value"], 1);
        assert_eq!(config["admin"]["address"]["socket_address"]["port_value"], 2);
        let text = config["static_resources"]["clusters"].to_string();
        assert!(text.contains(r#""port_value":3"#) && text.contains("provider.example.com"));
        let wasm = wasm_config(&config);
        assert_eq!(wasm["configuration"]["value"], "told");
        let file = wasm["vm_config"]["code"]["local"]["filename"].as_str();
        assert!(Path::new(file.unwrap()).is_absolute());
    }

    #[test]
    fn a_host_name_is_looked_up_and_an_address_is_not() {
        let config = wired(sample(), None).unwrap();
        let kind =
            |name| named(&mut config.clone(), "clusters", name).next().unwrap()["type"].clone();
        assert_eq!((kind("weir"), kind("provider")), (json!("STATIC"), json!("STRICT_DNS")));
    }

    #[test]
    fn a_plugin_configuration_is_kept_if_none_is_given() {
        let before = wasm_config(&sample())["configuration"].clone();
        let config = wired(sample(), None).unwrap();
        assert_eq!(wasm_config(&config)["configuration"], before);
    }

    #[test]
    fn a_filter_of_another_name_keeps_its_configuration() {
        let mut template = sample();
        for_each_wasm_config(&mut template, &mut |c| c["root_id"] = json!("baseline"));
        assert_eq!(weir_configurations(&sample()).len(), 1);
        assert_eq!(weir_configurations(&template).len(), 0);
        let config = wired(template, Some("told")).unwrap();
        assert_ne!(wasm_config(&config)["configuration"]["value"], "told");
    }

    #[test]
    fn a_cluster_that_the_template_leaves_out_stays_out() {
        let mut template = sample();
        let clusters = &mut template["static_resources"]["clusters"];
        clusters.as_array_mut().unwrap().retain(|c| c["name"] != "weir");
        let mut config = wired(template, None).unwrap();
        assert_eq!(named(&mut config, "clusters", "weir").count(), 0);
    }

    #[test]
    fn a_template_without_egress_is_refused() {
        let mut template = sample();
        template["static_resources"]["listeners"][0]["name"] = json!("other");
        let error = wired(template, None).unwrap_err().to_string();
        assert!(error.contains("`egress`"), "{error}");
    }

    #[test]
    fn endpoints_need_a_host_and_a_port() {
        for bad in ["", "9000", ":9000", "host", "host:", "host:0", "host:70000"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad:?}");
        }
    }
}
