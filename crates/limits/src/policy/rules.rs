//! The rules a policy must keep, in the order of the document.

use serde_json::Value;

use super::{
    Class, Limit, Match, Policy, PolicyError, Priority, Throttle, Window, hash,
    reader::{Fields, Node},
};
use crate::{gcra::Rate, members::Terms, units::Micros, worst};

const DAY: Micros = Micros::from_secs(86_400);
/// Longest time in which a burst may refill: instants stay below 2^53 µs, to where the numbers of
/// Redis' Lua are exact.
const REFILL_MAX: Micros = Micros::from_secs(366 * 86_400);
/// Longest name of a limit or class: they become parts of keys and metric names.
const NAME_MAX: usize = 63;

pub(super) fn policy(document: &Value) -> Result<Policy, PolicyError> {
    let known = ["version", "gateways", "decider", "path_jitter", "limits"];
    let fields = Node::root(document).fields(&known)?;
    fields.required("version")?.number(1, 1)?;
    let gateways = fields.required("gateways")?.fields(&["max"])?;
    let gateways_max = gateways.required("max")?.number(1, 1000)?;
    let decider = fields.required("decider")?.fields(&["timeout"])?;
    let timeout = decider.required("timeout")?;
    let decider_timeout = timeout.duration(Micros::from_millis(5), Micros::from_secs(5))?;
    let path_jitter = fields.required("path_jitter")?.duration(Micros::ZERO, Micros::SECOND)?;
    let common = Common { gateways_max, decider_timeout, path_jitter };
    let nodes = fields.required("limits")?.some()?;
    let mut limits: Vec<Limit> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let limit = limit(&node, &common)?;
        for other in &limits {
            if other.name == limit.name {
                return Err(node
                    .error(format!("name `{}` is taken; allowed: a name of its own", limit.name)));
            }
            if let Some(host) = overlap(&other.matches, &limit.matches) {
                return Err(node.error(format!(
                    "match overlaps with limit `{}` on host `{host}`; allowed: each request in one limit",
                    other.name
                )));
            }
        }
        limits.push(limit);
    }
    Ok(Policy { hash: hash(document), gateways_max, decider_timeout, path_jitter, limits })
}

/// What all limits share.
struct Common {
    gateways_max: u32,
    decider_timeout: Micros,
    path_jitter: Micros,
}

fn limit(node: &Node, common: &Common) -> Result<Limit, PolicyError> {
    let known = [
        "name", "match", "contract", "rates", "priority", "classes", "throttle", "fallback",
        "unsafe",
    ];
    let fields = node.fields(&known)?;
    let name = fields.required("name")?.text_that(is_name, NAME_RULE)?;
    let matches = matches(&fields.required("match")?)?;
    let contract = list(&fields.required("contract")?.some()?, window)?;
    let rate_nodes = fields.required("rates")?.some()?;
    let rates = list(&rate_nodes, rate)?;
    let class_nodes = fields.required("classes")?.some()?;
    let classes = list(&class_nodes, class)?;
    let priority = priority(&fields.required("priority")?, &classes)?;
    let throttle = throttle(fields.optional("throttle"))?;
    let terms = fields.optional("fallback").map(|node| terms(&node, common)).transpose()?;
    let unsafe_reason = fields
        .optional("unsafe")
        .map(|node| node.text_that(|text| !text.trim().is_empty(), "the reason, in words"))
        .transpose()?;
    let limit =
        Limit { name, matches, contract, rates, priority, classes, throttle, terms, unsafe_reason };
    targets_are_within_the_contract(&limit, &rate_nodes, common.path_jitter)?;
    if let Some(node) = fields.optional("fallback") {
        each_gateway_has_a_request_to_spare(&limit, &node, common)?;
    }
    classes_are_told_apart(&limit, &class_nodes)?;
    caps_are_within_the_target(&limit, &class_nodes)?;
    Ok(limit)
}

fn matches(node: &Node) -> Result<Match, PolicyError> {
    let fields = node.fields(&["hosts", "path_prefixes", "methods"])?;
    let host = |node: &Node| {
        let text = node.text_that(is_host, "a host name without port or wildcard")?;
        Ok(text.to_ascii_lowercase())
    };
    let prefix =
        |node: &Node| node.text_that(|text| text.starts_with('/'), "a path that starts with /");
    let method = |node: &Node| node.text_that(is_method, "a method in capitals, like POST");
    Ok(Match {
        hosts: list(&fields.required("hosts")?.some()?, host)?,
        path_prefixes: list(&fields.items("path_prefixes")?, prefix)?,
        methods: list(&fields.items("methods")?, method)?,
    })
}

fn window(node: &Node) -> Result<Window, PolicyError> {
    let fields = node.fields(&["requests", "per"])?;
    Ok(Window { requests: fields.required("requests")?.number(1, 10_000_000)?, per: per(&fields)? })
}

fn rate(node: &Node) -> Result<Rate, PolicyError> {
    let fields = node.fields(&["target", "per", "burst"])?;
    let target = fields.required("target")?.number(1, 10_000_000)?;
    let per = per(&fields)?;
    let Some(node) = fields.optional("burst") else {
        return Ok(Rate { target, per, burst: 1 });
    };
    let burst = node.number(1, 1_000_000)?;
    let interval = Rate { target, per, burst }.gcra().emission_interval();
    if interval.times(u64::from(burst)) > REFILL_MAX {
        let most = REFILL_MAX.0 / interval.0;
        return Err(node.error(format!(
            "`{burst}` requests at one per {interval} take more than a year to refill; allowed: at most {most} with this target"
        )));
    }
    Ok(Rate { target, per, burst })
}

fn per(fields: &Fields) -> Result<Micros, PolicyError> {
    fields.required("per")?.duration(Micros::from_millis(1), DAY)
}

fn class(node: &Node) -> Result<Class, PolicyError> {
    let fields = node.fields(&["name", "values", "principals", "rates"])?;
    let value = |node: &Node| {
        let text = node.text_that(is_value, "printable ASCII without spaces around it")?;
        Ok(text.to_ascii_lowercase())
    };
    let principal = |node: &Node| {
        node.text_that(|text| text.starts_with("spiffe://"), "a URI that starts with spiffe://")
    };
    Ok(Class {
        name: fields.required("name")?.text_that(is_name, NAME_RULE)?,
        values: list(&fields.required("values")?.some()?, value)?,
        principals: list(&fields.items("principals")?, principal)?,
        rates: list(&fields.items("rates")?, rate)?,
    })
}

fn priority(node: &Node, classes: &[Class]) -> Result<Priority, PolicyError> {
    let fields = node.fields(&["header", "default"])?;
    let header = fields
        .required("header")?
        .text_that(is_header, "a header name with no other use, like x-priority")?;
    let default = fields.required("default")?;
    let name = default.text()?;
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    let index = names.iter().position(|class| *class == name).ok_or_else(|| {
        default.error(format!("`{name}` is not a class; allowed: {}", names.join(", ")))
    })?;
    Ok(Priority { header: header.to_ascii_lowercase(), default: index })
}

fn throttle(node: Option<Node>) -> Result<Throttle, PolicyError> {
    let mut throttle = Throttle {
        statuses: vec![429],
        default_pause: Micros::SECOND,
        max_pause: Micros::from_secs(3_600),
    };
    let Some(node) = node else {
        return Ok(throttle);
    };
    let fields = node.fields(&["statuses", "default_pause", "max_pause"])?;
    if let Some(node) = fields.optional("statuses") {
        let status = |node: &Node| Ok(node.number(400, 599)? as u16);
        throttle.statuses = list(&node.some()?, status)?;
    }
    if let Some(node) = fields.optional("max_pause") {
        throttle.max_pause = node.duration(Micros::SECOND, DAY)?;
    }
    if let Some(node) = fields.optional("default_pause") {
        throttle.default_pause = node.duration(Micros::SECOND, throttle.max_pause)?;
    }
    Ok(throttle)
}

fn terms(node: &Node, common: &Common) -> Result<Terms, PolicyError> {
    /// A gateway renews three times in a lease, and each ask may take the time-out.
    const TIMEOUTS: u64 = 6;
    let fields = node.fields(&["lease", "forget_after"])?;
    let shortest = Micros::from_millis(500).max(common.decider_timeout.times(TIMEOUTS));
    let lease = match fields.optional("lease") {
        Some(node) => node.duration(shortest, Micros::from_secs(60))?,
        None => Micros::SECOND.max(shortest),
    };
    let forget_after = match fields.optional("forget_after") {
        Some(node) => node.duration(lease, DAY)?,
        None => Micros::from_secs(900).max(lease),
    };
    let (gateways, timeout) = (common.gateways_max, common.decider_timeout);
    Ok(Terms { lease, forget_after, gateways, timeout })
}

/// A gateway that begins to send on its own share is one request ahead of it: a burst of one each,
/// which is nobody's share of the target.
fn each_gateway_has_a_request_to_spare(
    limit: &Limit,
    node: &Node,
    common: &Common,
) -> Result<(), PolicyError> {
    let (gateways, jitter) = (common.gateways_max, common.path_jitter);
    if worst::headroom(&limit.rates, &limit.contract, jitter, gateways).is_some()
        || limit.unsafe_reason.is_some()
    {
        return Ok(());
    }
    Err(node.error(format!(
        "the contract leaves less than one request for each of {gateways} gateways over the worst case of the target; allowed: a lower target or burst, or no fallback"
    )))
}

/// For every window of the contract some rate must keep it, and none may aim above it.
fn targets_are_within_the_contract(
    limit: &Limit,
    nodes: &[Node],
    path_jitter: Micros,
) -> Result<(), PolicyError> {
    // Both are non-empty; the closest rate is the one to speak of.
    let Some((rate, node)) =
        limit.rates.iter().zip(nodes).max_by_key(|(rate, _)| rate.gcra().emission_interval())
    else {
        return Ok(());
    };
    for window in &limit.contract {
        let above = limit.rates.iter().all(|rate| {
            u128::from(rate.target) * u128::from(window.per.0)
                > u128::from(window.requests) * u128::from(rate.per.0)
        });
        let unsafe_ = !limit.rates.iter().any(|rate| worst::within(rate, window, path_jitter));
        if above || (unsafe_ && limit.unsafe_reason.is_none()) {
            let seen = worst::planned(rate, window, path_jitter);
            let allowed = match worst::highest_target(rate, window, path_jitter) {
                0 => format!("a burst below {}", window.requests),
                target => format!("a target of at most {target} per {} with this burst", rate.per),
            };
            let or = if above { "" } else { ", or `unsafe: <reason>` on the limit" };
            return Err(node.error(format!(
                "target {} per {} with burst {} and path_jitter {path_jitter} can put {seen} requests into {}, over the contract of {}; allowed: {allowed}{or}",
                rate.target, rate.per, rate.burst, window.per, window.requests
            )));
        }
    }
    Ok(())
}

fn classes_are_told_apart(limit: &Limit, nodes: &[Node]) -> Result<(), PolicyError> {
    let seen = limit.classes.iter().enumerate().zip(nodes);
    for ((index, class), node) in seen {
        for other in limit.classes.iter().take(index) {
            if other.name == class.name {
                return Err(node
                    .error(format!("name `{}` is taken; allowed: a name of its own", class.name)));
            }
            if let Some(value) = class.values.iter().find(|value| other.values.contains(value)) {
                return Err(node.error(format!(
                    "value `{value}` belongs to class `{}`; allowed: each value in one class",
                    other.name
                )));
            }
        }
    }
    Ok(())
}

/// A cap above what the whole limit aims for caps nothing.
fn caps_are_within_the_target(limit: &Limit, nodes: &[Node]) -> Result<(), PolicyError> {
    let faster = |a: &Rate, b: &Rate| {
        u128::from(a.target) * u128::from(b.per.0) > u128::from(b.target) * u128::from(a.per.0)
    };
    for (class, node) in limit.classes.iter().zip(nodes) {
        for (index, cap) in class.rates.iter().enumerate() {
            if limit.rates.iter().all(|rate| faster(cap, rate)) {
                let targets: Vec<String> = limit
                    .rates
                    .iter()
                    .map(|rate| format!("{} per {}", rate.target, rate.per))
                    .collect();
                return Err(PolicyError {
                    path: format!("{}.rates[{index}].target", node.path),
                    message: format!(
                        "{} per {} is above the limit's own target; allowed: at most {}",
                        cap.target,
                        cap.per,
                        targets.join(" or ")
                    ),
                });
            }
        }
    }
    Ok(())
}

/// A host on which both would match some request.
fn overlap<'a>(a: &'a Match, b: &Match) -> Option<&'a str> {
    let meet = |a: &[String], b: &[String], same: fn(&str, &str) -> bool| {
        a.is_empty() || b.is_empty() || a.iter().any(|a| b.iter().any(|b| same(a, b)))
    };
    let nested = |a: &str, b: &str| a.starts_with(b) || b.starts_with(a);
    let host = a.hosts.iter().find(|host| b.hosts.contains(host))?;
    let both = meet(&a.path_prefixes, &b.path_prefixes, nested)
        && meet(&a.methods, &b.methods, |a, b| a == b);
    both.then_some(host)
}

fn list<T>(
    nodes: &[Node],
    read: impl Fn(&Node) -> Result<T, PolicyError>,
) -> Result<Vec<T>, PolicyError> {
    nodes.iter().map(read).collect()
}

const NAME_RULE: &str = "1 to 63 of a-z, 0-9 and -";

fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(known)
}

fn is_host(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let labels = text.split('.').all(|label| !label.is_empty());
    labels && text.bytes().all(known)
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn is_value(text: &str) -> bool {
    text.trim() == text
        && !text.is_empty()
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The header is taken away from what goes to the provider: none that means something there.
fn is_header(text: &str) -> bool {
    const USED: [&str; 12] = [
        "authorization",
        "connection",
        "cookie",
        "date",
        "expect",
        "host",
        "proxy-authorization",
        "te",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-request-id",
    ];
    const USED_PREFIXES: [&str; 4] = ["accept", "content-", "x-envoy-", "x-forwarded-"];
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let lower = text.to_ascii_lowercase();
    let used = USED.contains(&lower.as_str())
        || USED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    !text.is_empty() && text.bytes().all(known) && !used
}
