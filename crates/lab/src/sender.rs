//! Sends a plan and records what came of each request.
//!
//! Each request is a task of its own, so an answer that is late delays nobody. The number in
//! flight is bounded; beyond it a request is given up and recorded as not sent.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{HeaderMap, Request};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::http::{CallError, Client, Reply};
use crate::schedule::{Stream, plan};

/// Where requests go, and what they all have in common.
#[derive(Debug, Clone)]
pub struct Target {
    /// The gateways' `HOST:PORT`, taken in turn; at least one.
    pub gateways: Vec<String>,
    /// The host header: the account's provider, as callers name it.
    pub host: String,
    pub path: String,
    /// The header that carries a stream's claim.
    pub priority_header: String,
    pub extra_headers: Vec<(String, String)>,
    /// A request without an answer by then has failed.
    pub time_out: Duration,
    pub max_in_flight: usize,
}

impl Target {
    /// Sends as the sample policy expects it.
    pub fn new(gateways: &[String]) -> Self {
        Self {
            gateways: gateways.to_vec(),
            host: "sms.example.com".to_owned(),
            path: "/v1/messages".to_owned(),
            priority_header: "x-priority".to_owned(),
            extra_headers: Vec::new(),
            time_out: Duration::from_secs(20),
            max_in_flight: 2_000,
        }
    }
}

/// All requests of one run, in the order of the plan.
#[derive(Debug, Clone)]
pub struct Run {
    /// The wall clock when offset 0 was due.
    pub started: SystemTime,
    pub sent: Vec<Sent>,
}

#[derive(Debug, Clone)]
pub struct Sent {
    /// Index of its stream.
    pub stream: usize,
    /// Its number within the stream, from 0; also in the body, as `id`.
    pub number: usize,
    /// Index of its gateway.
    pub gateway: usize,
    /// When it was due, from the start.
    pub due: Duration,
    /// How much later than due it left; a sender that is too slow shows here.
    pub late: Duration,
    /// From leaving to the last byte of the answer, or to its failure.
    pub took: Duration,
    pub outcome: Result<Answer, Failure>,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Too many were in flight already.
    NotSent,
    TimedOut,
    Broken(String),
}

impl Answer {
    pub fn passed(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The header's value if it is there once and readable.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }

    pub fn retry_after(&self) -> Option<Duration> {
        let exact = self.header("retry-after-ms").map(|v| (v, 1));
        let (value, ms) = exact.or_else(|| self.header("retry-after").map(|v| (v, 1_000)))?;
        Some(Duration::from_millis(value.parse::<u64>().ok()?.checked_mul(ms)?))
    }

    /// Why the gateway refused, from its problem document.
    pub fn reason(&self) -> Option<String> {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(problem.get("reason")?.as_str()?.to_owned())
    }

    /// The part of the time that the provider took, as Envoy measured it (whole milliseconds).
    pub fn at_provider(&self) -> Duration {
        let ms = self.header("x-envoy-upstream-service-time");
        Duration::from_millis(ms.and_then(|v| v.parse().ok()).unwrap_or(0))
    }
}

/// Sends every stream on schedule; returns when each request has its answer or has failed.
///
/// # Panics
/// If `target` names no gateway, or a header, host or path that HTTP does not allow.
pub async fn send(target: &Target, streams: &[Stream]) -> Run {
    assert!(!target.gateways.is_empty(), "a target has a gateway");
    let client = Client::default();
    let places = Arc::new(Semaphore::new(target.max_in_flight));
    let mut in_flight = JoinSet::new();
    let mut sent = Vec::new();
    let started = SystemTime::now();
    let start = Instant::now();
    for (index, due) in plan(streams).into_iter().enumerate() {
        let at = start + due.at;
        // tokio rounds up to a whole millisecond; what is due by now goes without a wait.
        if at > Instant::now() {
            sleep_until(at).await;
        }
        let mut one = Sent {
            stream: due.stream,
            number: due.number,
            gateway: index % target.gateways.len(),
            due: due.at,
            late: at.elapsed(),
            took: Duration::ZERO,
            outcome: Err(Failure::NotSent),
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            sent.push((index, one));
            continue;
        };
        let request = request(target, one.gateway, &streams[due.stream], due.number);
        let (client, time_out) = (client.clone(), target.time_out);
        in_flight.spawn(async move {
            let left = Instant::now();
            one.late = left.duration_since(at);
            let outcome = client.call(request, time_out).await;
            one.took = left.elapsed();
            one.outcome = outcome.map(Answer::from).map_err(Failure::from);
            drop(place);
            (index, one)
        });
    }
    while let Some(done) = in_flight.join_next().await {
        sent.push(done.expect("a sending task neither panics nor is cancelled"));
    }
    sent.sort_unstable_by_key(|(index, _)| *index);
    Run { started, sent: sent.into_iter().map(|(_, one)| one).collect() }
}

fn request(
    target: &Target,
    gateway: usize,
    stream: &Stream,
    number: usize,
) -> Request<Full<Bytes>> {
    let mut body = serde_json::json!({
        "class": stream.class,
        "to": "+15550100",
        "id": format!("{}-{}", stream.class, number),
    });
    if stream.body_bytes > 0 {
        body["text"] = "x".repeat(stream.body_bytes).into();
    }
    let uri = format!("http://{}{}", target.gateways[gateway], target.path);
    let mut request =
        Request::post(uri).header("host", &target.host).header("content-type", "application/json");
    if let Some(claim) = &stream.claims {
        request = request.header(&target.priority_header, claim);
    }
    for (name, value) in &target.extra_headers {
        request = request.header(name, value);
    }
    request
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("the target's headers, host and path are allowed in HTTP")
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { status: reply.status, headers: reply.headers, body: reply.body }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TimedOut(_) => Self::TimedOut,
            other => Self::Broken(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{Arrivals, Summary};

    /// Answers nobody before `count` requests have come in, then all of them.
    async fn gateway_that_answers_when_all_came(count: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while waiting.len() < count {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                assert!(connection.read(&mut request).await.unwrap() > 0);
                waiting.push(connection);
            }
            for mut connection in waiting {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                connection.write_all(answer).await.unwrap();
            }
        });
        address
    }

    fn at_once(count: usize) -> [Stream; 1] {
        [Stream::new("otp", Arrivals::AtOnce { count })]
    }

    #[tokio::test]
    async fn an_answer_that_is_late_delays_no_other_request() {
        let gateway = gateway_that_answers_when_all_came(20).await;
        let run = send(&Target::new(&[gateway]), &at_once(20)).await;
        let summary = Summary::of(run.sent.iter());
        assert_eq!((summary.sent, summary.passed), (20, 20));
    }

    #[tokio::test]
    async fn beyond_the_bound_requests_are_recorded_as_not_sent() {
        let gateway = gateway_that_answers_when_all_came(3).await;
        let mut target = Target::new(&[gateway]);
        target.max_in_flight = 3;
        let run = send(&target, &at_once(5)).await;
        let summary = Summary::of(run.sent.iter());
        assert_eq!((summary.passed, summary.not_sent), (3, 2));
    }
}
