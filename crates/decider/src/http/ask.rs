//! Turns a body into a question that makes sense under our policy, or says what is wrong with it.

use std::borrow::Cow;

use limits::{
    Micros,
    members::Caller,
    wire::{N_MAX, ThrottledRequest, WANTS_MAX},
};
use serde::Deserialize;

use super::App;
use crate::batch::Want;

/// Longest id of a report, in bytes: it becomes part of a key.
const ID_MAX: usize = 128;
/// Longest name of a gateway that takes part in the leased fallback, in bytes: it is a field's name.
const GATEWAY_MAX: usize = 256;
/// Names that are listed as allowed, before `…`.
const LISTED_MAX: usize = 20;

/// [`limits::wire::DecideRequest`], read without copying its texts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideRequest<'a> {
    #[serde(borrow)]
    limit: Cow<'a, str>,
    #[serde(borrow)]
    policy: Cow<'a, str>,
    #[serde(borrow)]
    gateway: Cow<'a, str>,
    deadline_us: Option<u64>,
    #[serde(default)]
    leaves: bool,
    #[serde(borrow)]
    wants: Vec<Count<'a>>,
}

/// [`limits::wire::Count`], the same way.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count<'a> {
    #[serde(borrow)]
    class: Cow<'a, str>,
    n: u64,
}

/// A question for one limit. Indices are the policy's.
pub(super) struct Ask {
    pub limit: usize,
    pub caller: Option<Caller>,
    pub wants: Vec<Want>,
}

pub(super) struct Report {
    pub limit: usize,
    pub pause: Micros,
    pub id: String,
}

pub(super) fn decide(app: &App, body: &[u8]) -> Result<Ask, String> {
    let request: DecideRequest<'_> = parse(body)?;
    let limit = limit(app, &request.limit)?;
    app.note_policy(limit, &request.policy, &request.gateway);
    let count = request.wants.len();
    if count > WANTS_MAX {
        return Err(format!("wants: {count} entries; allowed: at most {WANTS_MAX}"));
    }
    let classes = &app.accounts[limit].classes;
    let mut wants: Vec<Want> = Vec::with_capacity(count);
    for (i, asked) in request.wants.iter().enumerate() {
        let class = classes.iter().position(|class| *class == asked.class).ok_or_else(|| {
            let (class, known) = (shown(&asked.class), listed(classes.iter()));
            format!("wants[{i}].class: `{class}` is not in the policy; allowed: {known}")
        })?;
        if asked.n > N_MAX {
            let n = asked.n;
            return Err(format!("wants[{i}].n: {n} is too many; allowed: 0 to {N_MAX}"));
        }
        if wants.iter().any(|want| want.class == class) {
            let class = &asked.class;
            return Err(format!(
                "wants[{i}].class: `{class}` is there already; allowed: each class once"
            ));
        }
        wants.push(Want { class, n: asked.n });
    }
    let caller = caller(app, limit, &request)?;
    Ok(Ask { limit, caller, wants })
}

fn caller(app: &App, limit: usize, request: &DecideRequest<'_>) -> Result<Option<Caller>, String> {
    let gateway = &request.gateway;
    let named = (1..=GATEWAY_MAX).contains(&gateway.len());
    match request.deadline_us {
        None if request.leaves => Err("leaves: true without deadline_us; allowed: with it".into()),
        Some(_) if !named => Err(format!(
            "gateway: {} bytes with deadline_us; allowed: 1 to {GATEWAY_MAX}",
            gateway.len()
        )),
        Some(deadline) if app.accounts[limit].rules.terms.is_some() => Ok(Some(Caller {
            gateway: gateway.to_string(),
            deadline: Micros(deadline),
            leaves: request.leaves,
        })),
        _ => Ok(None),
    }
}

pub(super) fn throttled(app: &App, body: &[u8]) -> Result<Report, String> {
    let request: ThrottledRequest = parse(body)?;
    let limit = limit(app, &request.limit)?;
    let id = request.id;
    if !(1..=ID_MAX).contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        let id = shown(&id);
        return Err(format!(
            "id: `{id}` is not allowed; allowed: 1 to {ID_MAX} printable ASCII characters, no space"
        ));
    }
    Ok(Report { limit, pause: Micros(request.pause_us), id })
}

/// The limit's index.
pub(super) fn limit(app: &App, name: &str) -> Result<usize, String> {
    app.by_name.get(name).copied().ok_or_else(|| {
        let (name, known) = (shown(name), listed(app.accounts.iter().map(|account| &account.name)));
        format!("limit: `{name}` is not in the policy; allowed: {known}")
    })
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("body: {error}"))
}

/// A text of someone else's as it is quoted: bounded, and on one line.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut names: Vec<&str> = names.take(LISTED_MAX + 1).map(String::as_str).collect();
    if names.len() > LISTED_MAX {
        names[LISTED_MAX] = "…";
    }
    names.join(", ")
}
