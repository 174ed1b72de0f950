//! Callers: one request, many at once, and bytes as they are.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lab::http::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub use lab::Answer;

pub const HOST: &str = "sms.example.com";
/// More than any answer may take; who needs it sharper says so.
const LIMIT: Duration = Duration::from_secs(10);

/// A POST to the account's host.
pub async fn call(client: &Client, gateway: &str, headers: &[(&str, &str)]) -> Answer {
    call_at(client, gateway, "/v1/messages", headers).await
}

pub async fn call_at(
    client: &Client,
    gateway: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut request = Request::post(format!("http://{gateway}{path}"));
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", HOST);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from_static(b"{}"))).expect("a request");
    let reply = client.call(request, LIMIT).await.expect("the gateway answers");
    Answer { status: reply.status, headers: reply.headers, body: reply.body }
}

/// `count` requests that leave at the same moment, each on a connection that is open already; the
/// answers, and the time from the first that left to the last answer.
pub async fn burst(gateway: &str, class: &str, count: usize) -> (Vec<Answer>, Duration) {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(connect(gateway).await);
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let request = Request::post("/v1/messages")
            .header("host", HOST)
            .header("x-priority", class)
            .body(Full::new(Bytes::from(format!("{{\"class\":\"{class}\"}}"))))
            .expect("a request");
        tasks.spawn(async move {
            connection.ready().await.expect("an open connection");
            let reply = connection.send_request(request).await.expect("the gateway answers");
            let (head, body) = reply.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            Answer { status: head.status.as_u16(), headers: head.headers, body }
        });
    }
    let answers = tasks.join_all().await;
    (answers, start.elapsed())
}

async fn connect(gateway: &str) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(gateway).await.expect("the gateway listens");
    stream.set_nodelay(true).expect("a socket option");
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    sender
}

/// The answer to bytes that no client library would send. The request should ask for
/// `connection: close`; what comes until the end, or within a second, is the answer.
pub async fn raw(gateway: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway).await.expect("the gateway listens");
    stream.write_all(request).await.expect("the gateway reads");
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    let mut limit = LIMIT;
    while let Ok(Ok(n @ 1..)) = tokio::time::timeout(limit, stream.read(&mut piece)).await {
        answer.extend_from_slice(&piece[..n]);
        limit = Duration::from_secs(1);
    }
    assert!(!answer.is_empty(), "no answer at all");
    String::from_utf8_lossy(&answer).into_owned()
}
