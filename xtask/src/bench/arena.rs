//! Everything that is loaded, up at the same time and idle unless it is its turn: one gateway with a
//! listener for each filter, a decider on Redis, a decider without a store, the simulated provider.
//!
//! One gateway, so that both sides of a comparison share process, worker thread, memory and the
//! connections to the provider; what differs is the filter alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::http::Client;
use serde_json::{Value, json};

use super::Subject;
use super::compare::{At, Comparison, Figures, Side};
use super::cpu;
use super::load::Wrk;
use crate::paths;
use crate::stack::{Endpoint, Options, Ports, Programs, Stack, read_template};

pub const REFUSED_HOST: &str = "refused.example.com";
pub const GRANTED_HOST: &str = "granted.example.com";
pub const UNMATCHED_HOST: &str = "unmatched.example.com";
/// What a gateway with one waiting request sends.
pub const DECIDE_BODY: &str = r#"{"limit":"bench-granted","policy":"","gateway":"bench","wants":[{"class":"marketing","n":1}]}"#;

/// One limit that refuses all but one call a second, and one that refuses nothing. A decider that is
/// slow because the machine is busy must not turn a measurement into one of the fallback: hence the
/// long time-out.
const POLICY: &str = r"version: 1
gateways: { max: 1 }
decider: { timeout: 1s }
path_jitter: 20ms
limits:
  - name: bench-refused
    match: { hosts: [refused.example.com] }
    contract: [{ requests: 100, per: 1s }]
    rates: [{ target: 90, per: 1s, burst: 5 }]
    priority: { header: x-priority, default: marketing }
    classes:
      - { name: otp, values: [otp] }
      - { name: marketing, values: [marketing, bulk], rates: [{ target: 1, per: 1s, burst: 1 }] }
  - name: bench-granted
    match: { hosts: [granted.example.com] }
    contract: [{ requests: 10000000, per: 1s }]
    rates: [{ target: 1000000, per: 1s, burst: 1000000 }]
    priority: { header: x-priority, default: marketing }
    classes:
      - { name: otp, values: [otp] }
      - name: marketing
        values: [marketing, bulk]
        rates: [{ target: 1000000, per: 1s, burst: 1000000 }]
";

/// The size of what Weir answers, so that both sides send the same number of bytes.
const REFUSAL_BODY: &str = r#"{"class":"marketing","detail":"held back by limit bench-refused (class_rate)","limit":"bench-refused","reason":"class_rate","retry_after_ms":1000,"retry_at":"Thu, 01 Jan 2026 00:00:00 GMT","status":429,"title":"Too Many Requests","type":"about:blank","upstream_attempted":false}"#;
const REFUSAL_HEADERS: [(&str, &str); 7] = [
    ("content-type", "application/problem+json"),
    ("retry-after-ms", "1000"),
    ("x-should-retry", "true"),
    ("x-envoy-ratelimited", "true"),
    ("ratelimit-policy", "\"bench-refused\";q=90;w=1"),
    ("ratelimit", "\"bench-refused\";r=0;t=1"),
    ("retry-after", "1"),
];

const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Counters of the weir filter in Envoy's statistics.
const COUNTERS: &str = "wasmcustom.weir.";

pub struct Arena {
    stack: Stack,
    noop: Endpoint,
    call: Endpoint,
    without_store: Endpoint,
    client: Client,
    /// Holds the ports of the added listeners.
    _ports: Ports,
}

impl Arena {
    pub async fn start(programs: &Programs) -> Result<Self> {
        let mut ports = Ports::new(true)?;
        let noop = Endpoint::loopback(ports.free()?);
        let call = Endpoint::loopback(ports.free()?);
        let template = template(&sample()?, &noop, &call)?;
        let options = options(1, true, &template)?;
        let mut stack = Stack::start(&options, programs).await?;
        let without_store = stack
            .add_decider("decider-without-store", &programs.weir, &options.policy, "none")
            .await?;
        let client = Client::default();
        unbound_provider(&client, &stack.provider).await?;
        Ok(Self { stack, noop, call, without_store, client, _ports: ports })
    }

    pub async fn stop(self) {
        self.stack.stop().await;
    }

    /// Loads one side and says what it did and cost.
    pub async fn round(
        &mut self,
        wrk: &Wrk,
        comparison: &Comparison,
        side: &Side,
        lasting: Duration,
    ) -> Result<Figures> {
        let context = || format!("{}, {}", comparison.name(), side.name);
        let figures = self.measure(wrk, side, lasting).await.with_context(context)?;
        if side.at == At::Weir {
            check_filter(comparison.subject, &figures).with_context(context)?;
        }
        let ended = self.stack.newly_ended()?;
        ensure!(ended.is_empty(), "{}: {}", context(), ended.join("; "));
        Ok(figures)
    }

    async fn measure(&self, wrk: &Wrk, side: &Side, lasting: Duration) -> Result<Figures> {
        let at = self.place(side.at);
        // Reading them costs the gateway time, so it is done outside the time that is accounted.
        let counted_before = self.counters().await?;
        let cpu_before = self.cpu_times();
        let seen = wrk.run(&side.load, at, lasting).await?;
        let cpu_after = self.cpu_times();
        let mut filter = self.counters().await?;
        for (name, count) in &mut filter {
            *count -= counted_before.get(name).copied().unwrap_or(0);
        }
        filter.retain(|_, count| *count > 0);
        let per_request = |us: u64| us as f64 / seen.requests as f64;
        let cpu_us = cpu_after.into_iter().filter_map(|(name, after)| {
            let spent = after.checked_sub(*cpu_before.get(&name)?)?;
            (spent > 0).then(|| (name, per_request(spent)))
        });
        Ok(Figures {
            per_s: seen.per_s(),
            bytes_per_reply: seen.bytes / seen.requests,
            cpu_us: cpu_us.collect(),
            filter,
            seen,
        })
    }

    fn place(&self, at: At) -> &Endpoint {
        match at {
            At::Weir => &self.stack.gateways[0],
            At::Noop => &self.noop,
            At::Call => &self.call,
            At::DeciderOnRedis => &self.stack.deciders[0],
            At::DeciderWithoutStore => &self.without_store,
        }
    }

    fn cpu_times(&self) -> BTreeMap<String, u64> {
        let pids = self.stack.pids().into_iter();
        pids.filter_map(|(name, pid)| Some((name, cpu::time_us(pid)?))).collect()
    }

    async fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let admin = self.stack.admin[0].to_string();
        statistics(&self.client, &admin, COUNTERS).await
    }
}

/// Did the filter do what was to be measured?
fn check_filter(subject: Subject, figures: &Figures) -> Result<()> {
    let counted = |name: &str| figures.filter.get(name).copied().unwrap_or(0);
    let requests = figures.seen.requests;
    // wrk hangs up on those that are under way when its time is over: they are counted here only.
    let nearly_all = requests - requests / 100;
    for (name, count) in &figures.filter {
        if name.ends_with(".fallback") || name.ends_with("_failed") || name.ends_with(".broken") {
            bail!("the filter counted {count} {name}");
        }
    }
    let due = match subject {
        Subject::RefusedVsNoop => "bench-refused.marketing.refused_class_rate",
        Subject::GrantedVsNoopProxied | Subject::AddedP50VsHttpCall => {
            "bench-granted.marketing.granted"
        }
        _ => {
            ensure!(figures.filter.is_empty(), "the filter acted: {:?}", figures.filter);
            return Ok(());
        }
    };
    ensure!(
        counted(due) >= nearly_all,
        "of {requests} requests the filter counted {} as {due}",
        counted(due)
    );
    Ok(())
}

/// Envoy's statistics below a prefix.
pub async fn statistics(
    client: &Client,
    admin: &str,
    prefix: &str,
) -> Result<BTreeMap<String, u64>> {
    let path = format!("/stats?filter=^{}", prefix.replace('.', "%5C."));
    let reply = client.get(admin, &path, CALL_LIMIT).await?;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let pairs = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix(prefix)?.split_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Ok(pairs.collect())
}

/// The provider is there to answer, not to judge.
pub async fn unbound_provider(client: &Client, provider: &Endpoint) -> Result<()> {
    let model = json!({ "model": "fixed", "limit": 1_000_000, "suspend_after": null });
    let at = provider.to_string();
    client.post(&at, "/_sim/model", model.to_string(), CALL_LIMIT).await?;
    Ok(())
}

/// One gateway with so many workers.
pub fn options(workers: u16, redis: bool, template: &Value) -> Result<Options> {
    Ok(Options {
        gateways: 1,
        deciders: 1,
        redis,
        policy: file("policy.yaml", POLICY)?,
        provider: None,
        decider: None,
        template: file("envoy.yaml", &serde_saphyr::to_string(template)?)?,
        keep_plugin_config: false,
        workers,
        ephemeral: true,
    })
}

fn file(name: &str, content: &str) -> Result<PathBuf> {
    let file = paths::target("bench").join(name);
    std::fs::write(&file, content)?;
    Ok(file)
}

/// The sample configuration without its access log, which would cost both sides the same and more
/// than what is measured.
pub fn sample() -> Result<Value> {
    let mut config = read_template(&paths::root().join("envoy/envoy.yaml"))?;
    let listeners = config["static_resources"]["listeners"].as_array_mut();
    let listener = listeners.and_then(|all| all.first_mut()).context("it has no listener")?;
    manager(listener)?.as_object_mut().context("it is no object")?.remove("access_log");
    Ok(config)
}

/// The sample with one more listener for each baseline, all with the same routes.
fn template(sample: &Value, noop: &Endpoint, call: &Endpoint) -> Result<Value> {
    let mut config = sample.clone();
    let listeners =
        config["static_resources"]["listeners"].as_array_mut().context("it has no listeners")?;
    let egress = listeners.first_mut().context("it has no listener")?;
    manager(egress)?["route_config"]["virtual_hosts"] = virtual_hosts();
    let egress = egress.clone();
    for (name, at, told) in [("noop", noop, "noop"), ("call", call, "call bench-granted marketing")]
    {
        let mut listener = egress.clone();
        listener["name"] = json!(name);
        listener["address"] =
            json!({ "socket_address": { "address": at.host, "port_value": at.port } });
        let filter = wasm_filter(&mut listener)?;
        filter["root_id"] = json!("baseline");
        filter["vm_config"]["vm_id"] = json!(format!("baseline-{name}"));
        filter["vm_config"]["code"]["local"]["filename"] = json!(paths::wasm_module("baseline"));
        filter["configuration"]["value"] = json!(told);
        listeners.push(listener);
    }
    Ok(config)
}

fn virtual_hosts() -> Value {
    let headers: Vec<Value> = REFUSAL_HEADERS
        .iter()
        .map(|(key, value)| json!({ "header": { "key": key, "value": value } }))
        .collect();
    json!([
        {
            "name": "refused",
            "domains": [REFUSED_HOST],
            "response_headers_to_add": headers,
            "routes": [{
                "match": { "prefix": "/" },
                "direct_response": { "status": 429, "body": { "inline_string": REFUSAL_BODY } },
            }],
        },
        {
            "name": "everything-else",
            "domains": ["*"],
            "routes": [{
                "match": { "prefix": "/" },
                "route": { "cluster": "provider", "timeout": "15s" },
            }],
        },
    ])
}

/// Takes the Wasm filter out.
pub fn without_filter(config: &mut Value) -> Result<()> {
    let listener = config.pointer_mut("/static_resources/listeners/0").context("no listener")?;
    let filters = manager(listener)?["http_filters"].as_array_mut().context("no HTTP filters")?;
    filters.retain(|filter| filter["name"] != "weir");
    Ok(())
}

fn manager(listener: &mut Value) -> Result<&mut Value> {
    listener
        .pointer_mut("/filter_chains/0/filters/0/typed_config")
        .context("the listener has no HTTP connection manager")
}

fn wasm_filter(listener: &mut Value) -> Result<&mut Value> {
    let filters = manager(listener)?["http_filters"].as_array_mut();
    let mut filters = filters.into_iter().flatten();
    let filter = filters.find(|filter| filter["name"] == "weir");
    let filter = filter.and_then(|filter| filter.pointer_mut("/typed_config/config"));
    filter.context("the listener has no filter `weir`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &Value, kind: &str) -> Vec<String> {
        let list = config["static_resources"][kind].as_array().unwrap();
        list.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn listeners_differ_in_their_filter_only() {
        let (noop, call) = (Endpoint::loopback(1), Endpoint::loopback(2));
        let mut config = template(&sample().unwrap(), &noop, &call).unwrap();
        assert_eq!(names(&config, "listeners"), ["egress", "noop", "call"]);
        let listeners = config["static_resources"]["listeners"].as_array_mut().unwrap();
        for listener in listeners.iter_mut() {
            wasm_filter(listener).unwrap().take();
            for field in ["name", "address"] {
                listener[field].take();
            }
        }
        assert!(listeners.iter().all(|listener| listener == &listeners[0]));
        assert!(!listeners[0].to_string().contains("access_log"));
    }

    #[test]
    fn the_filter_can_be_taken_out() {
        let mut config = sample().unwrap();
        without_filter(&mut config).unwrap();
        assert!(!config.to_string().contains("wasm.v3.Wasm"));
    }
}
