//! HTTP around the [`Provider`].
//!
//! Promise: whatever is not under `/_sim/` is a call to the provider, with any method, host and
//! path. A call is judged when its headers arrive, and answered when its body has been read.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};

use crate::class::Classifier;
use crate::config::ConfigError;
use crate::provider::{Answer, Provider, Ticket};
use crate::record::MAX_RECENT;

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
        .route("/_sim/reset", post(reset))
        .route("/_sim/model", get(model).post(change))
        // A mistyped question must not pass for a call.
        .route("/_sim/{*rest}", any(no_such_question))
        .fallback(call)
        .with_state(provider)
}

async fn call(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut ticket = provider.arrive(&head);
    if let Err(unread) = read_body(&mut ticket, body).await {
        return unread.into_response();
    }
    if !ticket.latency.is_zero() {
        tokio::time::sleep(ticket.latency).await;
    }
    reply(ticket.id, ticket.answer.clone())
}

/// Why there is no answer to a call: its body did not come.
#[derive(Debug)]
enum Unread {
    Broken,
    Idle,
}

async fn read_body(ticket: &mut Ticket, mut body: Body) -> Result<(), Unread> {
    let mut classifier = Classifier::default();
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
    ticket.complete(classifier.finish().as_deref());
    Ok(())
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
        Answer::Accepted => Json(Accepted { accepted: true, id }).into_response(),
        Answer::Refused(refusal) => {
            refused(refusal.status, refusal.retry_after, "too many requests")
        }
        Answer::Suspended { remaining } => {
            let retry_after = HeaderValue::from(seconds_up(remaining));
            let status = StatusCode::TOO_MANY_REQUESTS;
            refused(status, Some(retry_after), "account suspended")
        }
        Answer::Forced(forced) => {
            let mut response = Response::new(Body::from(forced.body));
            *response.status_mut() = forced.status;
            *response.headers_mut() = forced.headers;
            response
        }
    }
}

/// Rounded up: who comes back then finds the account open.
fn seconds_up(remaining: Duration) -> u64 {
    remaining.as_secs() + u64::from(remaining.subsec_nanos() > 0)
}

fn refused(status: StatusCode, retry_after: Option<HeaderValue>, error: &'static str) -> Response {
    let accepted = false;
    let mut response = (status, Json(Refused { accepted, error })).into_response();
    if let Some(text) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, text);
    }
    response
}

async fn report(State(provider): State<Arc<Provider>>) -> Response {
    Json(provider.report()).into_response()
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
        "under /_sim/ there are report, arrivals, requests, reset and model",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_of_a_suspension_is_rounded_up() {
        assert_eq!(seconds_up(Duration::from_nanos(1)), 1);
        assert_eq!(seconds_up(Duration::from_secs(3600)), 3600);
        assert_eq!(seconds_up(Duration::from_millis(3_599_001)), 3600);
    }
}
