//! `weir check`: is this policy safe, and what can the provider see under it?
//!
//! Promise: a refusal is the filter's own sentence, on one line, with exit code 2.

use std::{fmt::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use limits::{
    Micros,
    gcra::Rate,
    policy::{Class, Limit, Policy},
    worst::{headroom, worst_case},
};
use serde_json::{Value, json};

use crate::document;

/// Windows that providers use and seldom write down.
const USUAL: [Micros; 3] = [Micros::from_millis(100), Micros::SECOND, Micros::from_secs(60)];

#[derive(Debug, Args)]
pub struct Check {
    /// The policy file (YAML or JSON)
    #[arg(value_name = "FILE", required_unless_present = "policy")]
    file: Option<PathBuf>,
    /// The same, as a flag; FILE wins
    #[arg(long, env = "WEIR_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a window of the provider can hold.
struct Seen {
    per: Micros,
    worst: u64,
    /// The contract's number; none for a window that it does not name.
    allowed: Option<u32>,
}

/// # Errors
/// The policy is refused.
pub fn run(check: &Check) -> anyhow::Result<()> {
    let Some(file) = check.file.as_ref().or(check.policy.as_ref()) else {
        anyhow::bail!("no policy file");
    };
    let policy = document::read(file).with_context(|| file.display().to_string())?.policy;
    let text = if check.json { format!("{:#}\n", as_json(&policy)) } else { as_text(&policy) };
    document::print(&text).context("cannot print")
}

/// The contract's windows and the usual ones, the shortest first.
fn seen(limit: &Limit, path_jitter: Micros) -> Vec<Seen> {
    let usual =
        USUAL.into_iter().filter(|per| limit.contract.iter().all(|window| window.per != *per));
    let mut windows: Vec<(Micros, Option<u32>)> = usual.map(|per| (per, None)).collect();
    for window in &limit.contract {
        windows.push((window.per, Some(window.requests)));
    }
    windows.sort();
    windows
        .into_iter()
        .map(|(per, allowed)| Seen {
            per,
            worst: worst_case(&limit.rates, per, path_jitter),
            allowed,
        })
        .collect()
}

/// The highest target of the slowest rate, below its present one, that would leave every gateway a
/// headroom. None when no target would.
fn target_with_headroom(policy: &Policy, limit: &Limit) -> Option<Rate> {
    let slowest = (0..limit.rates.len())
        .max_by_key(|index| limit.rates[*index].gcra().emission_interval())?;
    let with = |target: u32| {
        let mut rates = limit.rates.clone();
        rates[slowest].target = target;
        rates
    };
    let leaves = |target| {
        let (jitter, gateways) = (policy.path_jitter, policy.gateways_max);
        headroom(&with(target), &limit.contract, jitter, gateways).is_some()
    };
    // A lower target never leaves less.
    let (mut low, mut high) = (0, limit.rates[slowest].target);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if leaves(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low > 0).then(|| with(low)[slowest])
}

fn as_text(policy: &Policy) -> String {
    let mut text = format!(
        "policy {}: safe\ngateways: at most {}; decider timeout: {}; path jitter: {}\n",
        policy.hash, policy.gateways_max, policy.decider_timeout, policy.path_jitter
    );
    for limit in &policy.limits {
        limit_text(&mut text, policy, limit);
    }
    text
}

/// Writing to a string does not fail.
fn limit_text(text: &mut String, policy: &Policy, limit: &Limit) {
    let _ = writeln!(text, "\nlimit {}", limit.name);
    for rate in &limit.rates {
        let _ = writeln!(text, "  rate {}", rate_text(rate));
    }
    for (index, class) in limit.classes.iter().enumerate() {
        let _ = writeln!(text, "  {}", class_text(class, index == limit.priority.default));
    }
    let _ = writeln!(text, "  {:<10} {:>12} {:>12}", "window", "at most", "contract");
    for seen in seen(limit, policy.path_jitter) {
        let allowed = seen.allowed.map_or("-".to_owned(), |n| n.to_string());
        let over = match seen.allowed {
            Some(allowed) if seen.worst > u64::from(allowed) => "  over",
            _ => "",
        };
        let per = seen.per.to_string();
        let _ = writeln!(text, "  {per:<10} {:>12} {allowed:>12}{over}", seen.worst);
    }
    if let Some(reason) = &limit.unsafe_reason {
        let _ = writeln!(text, "  unsafe, because: {reason}");
    }
    let gateways = policy.gateways_max;
    let _ = match (policy.headroom(limit), target_with_headroom(policy, limit)) {
        (Some(gcra), _) => writeln!(
            text,
            "  headroom: each of {gateways} gateways may send one per {} when the decider cannot answer",
            gcra.emission_interval()
        ),
        (None, Some(rate)) => writeln!(
            text,
            "  headroom: none when the decider cannot answer; a target of {} per {} would fund some for each of {gateways} gateways",
            rate.target, rate.per
        ),
        (None, None) => writeln!(
            text,
            "  headroom: none when the decider cannot answer, and no target would fund any for each of {gateways} gateways"
        ),
    };
    write_fallback(text, limit);
}

fn write_fallback(text: &mut String, limit: &Limit) {
    // Writing to a string does not fail.
    let _ = match &limit.terms {
        None => {
            writeln!(text, "  fallback: none; without the decider, the headroom is all there is")
        }
        Some(terms) => writeln!(
            text,
            "  fallback: a gateway that gets no answer is dark for {} after its last ask, then sends 1/{} of the target, until {} after its last answer; who is missing for {} is forgotten",
            terms.dark(),
            terms.gateways,
            terms.right(),
            terms.forget_after
        ),
    };
}

fn rate_text(rate: &Rate) -> String {
    format!(
        "{} per {}, burst {}: one per {}",
        rate.target,
        rate.per,
        rate.burst,
        rate.gcra().emission_interval()
    )
}

fn class_text(class: &Class, is_default: bool) -> String {
    let default = if is_default { " (default)" } else { "" };
    let caps: Vec<String> = class.rates.iter().map(rate_text).collect();
    let caps = if caps.is_empty() { "no cap of its own".to_owned() } else { caps.join("; ") };
    let who =
        if class.principals.is_empty() { "anyone".to_owned() } else { class.principals.join(", ") };
    let values = class.values.join(", ");
    format!("class {}{default}: {caps}; values {values}; from {who}", class.name)
}

fn as_json(policy: &Policy) -> Value {
    let limits: Vec<Value> = policy.limits.iter().map(|limit| limit_json(policy, limit)).collect();
    json!({
        "hash": policy.hash,
        "gateways_max": policy.gateways_max,
        "decider_timeout_us": policy.decider_timeout.0,
        "path_jitter_us": policy.path_jitter.0,
        "limits": limits,
    })
}

fn limit_json(policy: &Policy, limit: &Limit) -> Value {
    let class = |(index, class): (usize, &Class)| {
        json!({
            "name": class.name,
            "default": index == limit.priority.default,
            "values": class.values,
            "principals": class.principals,
            "rates": class.rates.iter().map(rate_json).collect::<Vec<_>>(),
        })
    };
    let window = |seen: Seen| json!({ "per_us": seen.per.0, "at_most": seen.worst, "contract": seen.allowed });
    let headroom = policy.headroom(limit).map(|gcra| gcra.emission_interval().0);
    let funding = target_with_headroom(policy, limit).filter(|_| headroom.is_none());
    json!({
        "name": limit.name,
        "rates": limit.rates.iter().map(rate_json).collect::<Vec<_>>(),
        "classes": limit.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
        "windows": seen(limit, policy.path_jitter).into_iter().map(window).collect::<Vec<_>>(),
        "headroom_interval_us": headroom,
        "target_with_headroom": funding.as_ref().map(rate_json),
        "fallback": limit.terms.map(|terms| json!({
            "dark_us": terms.dark().0,
            "share_until_us": terms.right().0,
            "forget_after_us": terms.forget_after.0,
        })),
        "unsafe": limit.unsafe_reason,
    })
}

fn rate_json(rate: &Rate) -> Value {
    json!({
        "target": rate.target,
        "per_us": rate.per.0,
        "burst": rate.burst,
        "emission_interval_us": rate.gcra().emission_interval().0,
    })
}
