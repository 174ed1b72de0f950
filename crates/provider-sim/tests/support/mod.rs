//! A provider in this process, and a client that can hold a body back.

use std::error::Error;
use std::net::SocketAddr;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use provider_sim::Server;
use provider_sim::config::Settings;
use provider_sim::provider::Provider;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub type TestResult<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;
pub type TestBody = BoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Questions asked before a condition counts as never met: tens of seconds.
const PATIENCE: usize = 5_000;

/// Ends when dropped.
pub struct Sim {
    addr: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Sim {
    pub async fn start(settings: Settings) -> TestResult<Self> {
        let server = Server::bind("127.0.0.1:0", Provider::new(settings)?).await?;
        let addr = server.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Ok(Self { addr, _stop: stop })
    }

    pub async fn connect(&self) -> TestResult<Client> {
        let stream = TcpStream::connect(self.addr).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Client { sender })
    }
}

pub struct Client {
    sender: SendRequest<TestBody>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Client {
    pub async fn send(&mut self, request: Request<TestBody>) -> TestResult<Reply> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body: String::from_utf8(body.to_vec())?,
        })
    }

    pub async fn post(&mut self, path: &str, body: &str) -> TestResult<Reply> {
        self.send(request(Method::POST, path, full(body))?).await
    }

    pub async fn get(&mut self, path: &str) -> TestResult<Reply> {
        self.send(request(Method::GET, path, full(""))?).await
    }

    pub async fn report(&mut self) -> TestResult<Value> {
        self.get("/_sim/report").await?.json()
    }

    /// The first report of which `met` holds.
    pub async fn report_when(&mut self, met: impl Fn(&Value) -> bool) -> TestResult<Value> {
        let mut report = Value::Null;
        for _ in 0..PATIENCE {
            report = self.report().await?;
            if met(&report) {
                return Ok(report);
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        Err(format!("never met, last report: {report}").into())
    }
}

impl Reply {
    pub fn json(&self) -> TestResult<Value> {
        Ok(serde_json::from_str(&self.body)?)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

pub fn request(method: Method, target: &str, body: TestBody) -> TestResult<Request<TestBody>> {
    let request = Request::builder().method(method).uri(target);
    Ok(request.header("host", "sms.example.com").body(body)?)
}

pub fn full(body: &str) -> TestBody {
    let body = Full::new(Bytes::from(body.to_owned()));
    body.map_err(|never| match never {}).boxed()
}
