//! HTTP around the [`Provider`].
//!
//! Promise: whatever is not under `/_sim/` is a call to the provider, with any method, host and
//! path. A call is judged when its headers arrive, unless the model says later, and answered when
//! its body has been read and it has been worked off.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};

use crate::broken::BrokenBody;
use crate::class::Classifier;
use crate::config::{ConfigError, MODELS, REPLIES};
use crate::provider::{Answer, Provider, Ticket};
use crate::record::MAX_RECENT;
use crate::reply::{FORMS, Refusal, RenderedRefusal, imf_date, offset};

/// Longest silence within a body.
pub const BODY_IDLE: Duration = Duration::from_secs(60);

/// On `/_sim/arrivals`: the log holds the first 1,000,000 only.
const TRUNCATED: HeaderName = HeaderName::from_static("x-sim-truncated");
/// Arrivals copied under one hold of the lock.
const PIECE: usize = 10_000;

pub fn router(provider: Arc<Provider>) -> Router {
    Router::new()
        .route("/_sim/report", get(report))
        .route("/_sim/arrivals", get(arrivals))
        .route("/_sim/requests", get(requests))
        .route("/_sim/timeline", get(timeline))
        .route("/_sim/reset", post(reset))
        .route("/_sim/restart", post(restart))
        .route("/_sim/models", get(models))
        .route("/_sim/model", get(model).post(change))
        // A mistyped question must not pass for a call.
        .route("/_sim/{*rest}", any(no_such_question))
        .fallback(call)
        .with_state(provider)
}

async fn call(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut ticket = provider.arrive(&head);
    let due = match read_body(&mut ticket, body).await {
        Ok(due) => due,
        Err(unread) => return unread.into_response(),
    };
    if due > Instant::now() {
        tokio::time::sleep_until(due.into()).await;
    }
    let answer = ticket.answer();
    let mut response = reply(ticket.id, answer);
    if ticket.clock_offset_s != 0 {
        let date = imf_date(offset(SystemTime::now(), ticket.clock_offset_s));
        if let Ok(date) = HeaderValue::try_from(date) {
            response.headers_mut().entry(header::DATE).or_insert(date);
        }
    }
    response
}

/// Why there is no answer to a call: its body did not come.
#[derive(Debug)]
enum Unread {
    Broken,
    Idle,
}

/// Returns when the reply is due.
async fn read_body(ticket: &mut Ticket, mut body: Body) -> Result<Instant, Unread> {
    let mut classifier = Classifier::new(ticket.cost_field.clone());
    loop {
        let frame = match tokio::time::timeout(BODY_IDLE, body.frame()).await {
            Err(_) => return Err(Unread::Idle),
            Ok(Some(Err(_))) => return Err(Unread::Broken),
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
        };
        if let Some(data) = frame.data_ref() {
            ticket.body(data.len());
            classifier.feed(data);
        }
    }
    Ok(ticket.complete(&classifier.finish()))
}

impl IntoResponse for Unread {
    fn into_response(self) -> Response {
        match self {
            Self::Broken => error(StatusCode::BAD_REQUEST, "body: broken off"),
            Self::Idle => error(StatusCode::REQUEST_TIMEOUT, "body: nothing came for 60 s"),
        }
    }
}

#[derive(Serialize)]
struct Accepted {
    accepted: bool,
    id: u64,
}

#[derive(Serialize)]
struct Refused {
    accepted: bool,
    error: &'static str,
}

fn reply(id: u64, answer: Answer) -> Response {
    match answer {
        Answer::Accepted { lost: false } => Json(Accepted { accepted: true, id }).into_response(),
        // The connection is closed before the head of this reply is written.
        Answer::Accepted { lost: true } => Response::new(Body::new(BrokenBody)),
        Answer::Refused { refusal, wait, suspended } => refused(&refusal, wait, suspended),
        Answer::Forced(forced) => {
            let mut response = Response::new(Body::from(forced.body));
            *response.status_mut() = forced.status;
            *response.headers_mut() = forced.headers;
            response
        }
        Answer::Full => error(StatusCode::SERVICE_UNAVAILABLE, "too many calls in flight"),
        Answer::Gone => error(StatusCode::SERVICE_UNAVAILABLE, "reset before the verdict"),
    }
}

fn refused(refusal: &Refusal, wait: Duration, suspended: bool) -> Response {
    let RenderedRefusal { status, headers, body } = refusal.render(SystemTime::now(), wait);
    let mut response = match body {
        None => {
            let error = if suspended { "account suspended" } else { "too many requests" };
            Json(Refused { accepted: false, error }).into_response()
        }
        Some(text) => {
            let json = text.starts_with(['{', '[']);
            let kind = if json { "application/json" } else { "text/plain; charset=utf-8" };
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
    };
    *response.status_mut() = status;
    let fields = response.headers_mut();
    for (name, _) in &headers {
        fields.remove(name);
    }
    for (name, value) in headers {
        fields.append(name, value);
    }
    response
}

async fn report(State(provider): State<Arc<Provider>>) -> Response {
    Json(provider.report()).into_response()
}

async fn timeline(State(provider): State<Arc<Provider>>) -> Response {
    Json(provider.timeline()).into_response()
}

async fn arrivals(State(provider): State<Arc<Provider>>) -> Response {
    let (mut all, generation, mut truncated) = provider.arrivals(0, PIECE);
    loop {
        let (piece, now_generation, cut) = provider.arrivals(all.len(), PIECE);
        if piece.is_empty() || now_generation != generation {
            break;
        }
        truncated = cut;
        all.extend(piece);
    }
    let text = if truncated { "true" } else { "false" };
    ([(TRUNCATED, text)], Json(all)).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    #[serde(default = "all_recent")]
    last: usize,
}

fn all_recent() -> usize {
    MAX_RECENT
}

async fn requests(
    State(provider): State<Arc<Provider>>,
    query: Result<Query<Last>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(Last { last })) => Json(provider.requests(last)).into_response(),
        Err(rejection) => {
            let text = rejection.body_text();
            let allowed = "only last is allowed, a whole number";
            error(StatusCode::BAD_REQUEST, &format!("{text}; {allowed}"))
        }
    }
}

async fn reset(State(provider): State<Arc<Provider>>) -> Response {
    match provider.reset() {
        Ok(()) => Json(serde_json::json!({ "reset": true })).into_response(),
        Err(refused) => refused.into_response(),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restart {
    #[serde(default, with = "humantime_serde")]
    phase: Option<Duration>,
}

async fn restart(State(provider): State<Arc<Provider>>, body: Bytes) -> Response {
    let given = match body.trim_ascii() {
        b"" => Ok(Restart::default()),
        text => serde_json::from_slice(text),
    };
    match given {
        Ok(Restart { phase }) => {
            provider.restart(phase);
            Json(serde_json::json!({ "restarted": true })).into_response()
        }
        Err(wrong) => {
            let allowed = "only phase is allowed, such as 370ms";
            error(StatusCode::BAD_REQUEST, &format!("{wrong}; {allowed}"))
        }
    }
}

async fn models() -> Response {
    let forms: Vec<_> = FORMS
        .iter()
        .map(|form| {
            serde_json::json!({"name": form.name, "fields": form.fields, "about": form.about})
        })
        .collect();
    let all = serde_json::json!({"models": *MODELS, "replies": *REPLIES, "retry_after": forms});
    Json(all).into_response()
}

async fn model(State(provider): State<Arc<Provider>>) -> Response {
    Json(provider.model()).into_response()
}

async fn change(State(provider): State<Arc<Provider>>, body: Bytes) -> Response {
    match provider.change(&body) {
        Ok(model) => Json(model).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn no_such_question() -> Response {
    error(
        StatusCode::NOT_FOUND,
        "under /_sim/ there are report, timeline, arrivals, requests, reset, restart, model and models",
    )
}

impl IntoResponse for ConfigError {
    fn into_response(self) -> Response {
        error(StatusCode::BAD_REQUEST, &self.to_string())
    }
}

fn error(status: StatusCode, text: &str) -> Response {
    (status, Json(serde_json::json!({ "error": text }))).into_response()
}
