//! Small HTTP/1.1 calls over plain TCP: what readiness probes and reports need.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request};
use hyper_util::client::legacy::Client as Pooled;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Broken(String),
    #[error("answered {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("the answer is not the expected JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A connection pool; cheap to clone, clones share the connections.
#[derive(Debug, Clone)]
pub struct Client(Pooled<HttpConnector, Full<Bytes>>);

impl Default for Client {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        // Small requests must not wait for an earlier one's acknowledgement.
        connector.set_nodelay(true);
        Self(Pooled::builder(TokioExecutor::new()).pool_max_idle_per_host(1024).build(connector))
    }
}

impl Client {
    /// The whole exchange, body included, within `limit`.
    pub async fn call(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Reply, CallError> {
        let exchange = async {
            let reply = self.0.request(request).await.map_err(broken)?;
            let (head, body) = reply.into_parts();
            let body = body.collect().await.map_err(broken)?.to_bytes();
            Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallError::TimedOut(limit)))
    }

    /// `address` is `HOST:PORT`; any status outside 200–299 is an error.
    pub async fn get(
        &self,
        address: &str,
        path: &str,
        limit: Duration,
    ) -> Result<Reply, CallError> {
        self.simple(Method::GET, address, path, Bytes::new(), limit).await
    }

    pub async fn get_json<T: serde::de::DeserializeOwned>(
        &self,
        address: &str,
        path: &str,
        limit: Duration,
    ) -> Result<T, CallError> {
        let reply = self.get(address, path, limit).await?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// An empty `body` is sent as such; anything else as JSON.
    pub async fn post(
        &self,
        address: &str,
        path: &str,
        body: impl Into<Bytes>,
        limit: Duration,
    ) -> Result<Reply, CallError> {
        self.simple(Method::POST, address, path, body.into(), limit).await
    }

    async fn simple(
        &self,
        method: Method,
        address: &str,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Reply, CallError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(broken)?;
        let reply = self.call(request, limit).await?;
        if !(200..300).contains(&reply.status) {
            return Err(CallError::Refused {
                status: reply.status,
                body: String::from_utf8_lossy(&reply.body).into_owned(),
            });
        }
        Ok(reply)
    }
}

/// hyper's errors hide what happened in their sources.
fn broken(error: impl std::error::Error) -> CallError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    CallError::Broken(text)
}
