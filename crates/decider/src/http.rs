//! The decider's endpoint.
//!
//! Promise: every reply, errors included, carries the marker header, and every refusal is JSON that
//! names the field, its value and what is allowed. A request ends by the store's
//! deadline, counted from when its body is there. A gateway
//! that runs another policy is counted, never refused.

mod ask;
mod limit;
mod reply;

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, FromRequest, Path, Request, State,
        rejection::{BytesRejection, PathRejection},
    },
    http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use limits::{
    policy::Policy,
    wire::{DECIDE_PATH, MARKER, Refusal, THROTTLED_PATH, ThrottledReply},
};
use serde::Serialize;
use tokio::time::timeout;
use tower_http::set_header::SetResponseHeaderLayer;
use tracing::warn;

use crate::{
    batch::{AskError, Batcher},
    metrics::{ConnectionMetrics, Metrics},
    sparse::Sparse,
    store::{Account, Store, StoreError, accounts, within},
};

/// The longest body, in bytes: [`limits::wire::WANTS_MAX`] wants need a tenth of it.
const BODY_MAX: usize = 64 << 10;
/// A gateway sends an ask in one piece; it waits seconds for nothing.
const BODY_WAIT: Duration = Duration::from_secs(5);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// What the handlers share.
pub struct App {
    policy: Policy,
    accounts: Vec<Account>,
    by_name: HashMap<String, usize>,
    engine: Engine,
    metrics: Metrics,
    /// How long the store may take.
    deadline: Duration,
    mismatch_log: Sparse,
    stop_log: Sparse,
}

/// Who answers.
enum Engine {
    /// One batcher per limit, in the policy's order.
    Store { store: Arc<dyn Store>, batchers: Vec<Batcher> },
    /// Grants everything: what the endpoint costs by itself, to measure against.
    Nothing,
}

#[derive(Debug, thiserror::Error)]
enum HttpError {
    #[error("{0}")]
    Bad(String),
    #[error("{0}")]
    NotFound(String),
    #[error("method not allowed on this path; allowed: {0}")]
    Method(&'static str),
    #[error("body is longer than {BODY_MAX} bytes, the most that is allowed")]
    TooLong,
    #[error("body did not come within {BODY_WAIT:?}, the longest that is allowed")]
    TooSlow,
    #[error(transparent)]
    Unavailable(#[from] AskError),
}

impl App {
    /// Starts one batcher per limit. Without a store everything is granted.
    pub fn new(policy: Policy, store: Option<Arc<dyn Store>>, deadline: Duration) -> Self {
        let accounts = accounts(&policy);
        let metrics = Metrics::new(&accounts, &policy.hash);
        let batcher = |store: &Arc<dyn Store>, limit: usize, account: &Account| {
            let counters = metrics.limits[limit].clone();
            let store = Arc::clone(store);
            Batcher::start(store, limit, account, deadline, counters)
        };
        let engine = match store {
            None => Engine::Nothing,
            Some(store) => Engine::Store {
                batchers: accounts
                    .iter()
                    .enumerate()
                    .map(|(limit, account)| batcher(&store, limit, account))
                    .collect(),
                store,
            },
        };
        Self {
            by_name: accounts
                .iter()
                .enumerate()
                .map(|(limit, account)| (account.name.clone(), limit))
                .collect(),
            policy,
            accounts,
            engine,
            metrics,
            deadline,
            mismatch_log: Sparse::default(),
            stop_log: Sparse::default(),
        }
    }

    /// For who accepts the connections.
    pub fn connections(&self) -> ConnectionMetrics {
        self.metrics.connections.clone()
    }

    fn note_policy(&self, limit: usize, hash: &str, gateway: &str) {
        if hash == self.policy.hash {
            return;
        }
        self.metrics.limits[limit].mismatches.inc();
        if self.mismatch_log.is_due() {
            let (hash, gateway) = (ask::shown(hash), ask::shown(gateway));
            warn!(gateway, theirs = hash, ours = self.policy.hash, "a gateway runs another policy");
        }
    }
}

/// Every path there is.
pub fn router(app: Arc<App>) -> Router {
    let marker = HeaderName::from_static(MARKER);
    Router::new()
        .route(DECIDE_PATH, post(decide).fallback(only_post))
        .route(THROTTLED_PATH, post(throttled).fallback(only_post))
        .route("/v1/limits/{name}", get(look).fallback(only_get))
        .route("/healthz", get(async || "ok\n").fallback(only_get))
        .route("/readyz", get(ready).fallback(only_get))
        .route("/metrics", get(metrics).fallback(only_get))
        .fallback(async || HttpError::NotFound(NO_PATH.to_owned()))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(SetResponseHeaderLayer::overriding(marker, HeaderValue::from_static("1")))
        .with_state(app)
}

const NO_PATH: &str = "no such path; allowed: /v1/decide, /v1/throttled, /v1/limits/{name}, \
                       /healthz, /readyz, /metrics";

const NO_NAME: &str = "limit: the path has no UTF-8 in it; allowed: a name of the policy";

async fn only_post() -> HttpError {
    HttpError::Method("POST")
}

async fn only_get() -> HttpError {
    HttpError::Method("GET")
}

async fn decide(State(app): State<Arc<App>>, request: Request) -> Response {
    match answer(&app, request).await {
        Ok(response) => response,
        Err(error) => {
            if !matches!(error, HttpError::Unavailable(_)) {
                app.metrics.bad_requests.inc();
            }
            error.into_response()
        }
    }
}

async fn answer(app: &App, request: Request) -> Result<Response, HttpError> {
    let ask = ask::decide(app, &body(request).await?).map_err(HttpError::Bad)?;
    let account = &app.accounts[ask.limit];
    app.metrics.limits[ask.limit].asks.inc();
    let answer = match &app.engine {
        Engine::Store { batchers, .. } => batchers[ask.limit].ask(ask.caller, ask.wants).await?,
        Engine::Nothing => reply::all_granted(account, ask.wants),
    };
    Ok(written(reply::write(account, &answer)))
}

/// The whole body. The timer is set only if it does not come with its head.
async fn body(request: Request) -> Result<Bytes, HttpError> {
    match timeout(BODY_WAIT, Bytes::from_request(request, &())).await {
        Ok(body) => Ok(body?),
        Err(_) => Err(HttpError::TooSlow),
    }
}

async fn throttled(State(app): State<Arc<App>>, request: Request) -> Result<Response, HttpError> {
    let parsed =
        body(request).await.and_then(|body| ask::throttled(&app, &body).map_err(HttpError::Bad));
    let ask::Report { limit, pause, id } = parsed.inspect_err(|_| {
        app.metrics.bad_requests.inc();
    })?;
    let metrics = &app.metrics.limits[limit];
    metrics.throttled.inc();
    let Engine::Store { store, .. } = &app.engine else {
        return Ok(json(&ThrottledReply { penalty_us: pause.0 }));
    };
    let (store, deadline) = (Arc::clone(store), app.deadline);
    // A task of its own: a report must arrive even if its gateway has hung up.
    let call = async move { within(deadline, store.throttled(limit, pause, &id)).await };
    let left = detached(call).await.inspect_err(|error| metrics.store_failed(error))?;
    metrics.penalty(left);
    if app.stop_log.is_due() {
        let limit = &app.accounts[limit].name;
        warn!(limit, %pause, %left, "the provider throttled us: everyone stops");
    }
    Ok(json(&ThrottledReply { penalty_us: left.0 }))
}

async fn look(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, HttpError> {
    let Path(name) = name.map_err(|_| HttpError::NotFound(NO_NAME.to_owned()))?;
    let limit = ask::limit(&app, &name).map_err(HttpError::NotFound)?;
    let Engine::Store { store, .. } = &app.engine else {
        return Err(HttpError::NotFound("there is no store".to_owned()));
    };
    let (store, deadline) = (Arc::clone(store), app.deadline);
    let snapshot = detached(async move { within(deadline, store.look(limit)).await }).await?;
    let (account, policy) = (&app.accounts[limit], &app.policy.limits[limit]);
    Ok(json(&limit::view(account, policy, &snapshot)))
}

async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, HttpError> {
    if let Engine::Store { store, .. } = &app.engine {
        let (store, deadline) = (Arc::clone(store), app.deadline);
        detached(async move { within(deadline, store.ping()).await }).await?;
    }
    Ok("ready\n")
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPENMETRICS)], app.metrics.text())
}

/// Runs a call to the end even if whoever asked for it hangs up: a call to a store that is dropped
/// counts as a store that hangs.
async fn detached<T: Send + 'static>(
    call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let ended = |_| StoreError::Unreachable("its task has ended".to_owned());
    tokio::spawn(call).await.map_err(ended)?
}

fn json(body: &impl Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(text) => written(text),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A body that is JSON already.
fn written(text: String) -> Response {
    // Not as text, whose own content type would only be replaced.
    ([(CONTENT_TYPE, JSON)], Bytes::from(text)).into_response()
}

impl From<BytesRejection> for HttpError {
    fn from(rejection: BytesRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Self::TooLong
        } else {
            Self::Bad(format!("body: {}", rejection.body_text()))
        }
    }
}

impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let error = self.to_string();
        (status, json(&Refusal { error })).into_response()
    }
}

#[cfg(test)]
mod tests;
