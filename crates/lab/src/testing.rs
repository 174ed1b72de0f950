//! What the tests run against: a real Redis, and the judge in their own process.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use provider_sim::Server;
use provider_sim::config::{Settings, lay, parse_document};
use provider_sim::provider::Provider;

use crate::queue::connect;

const START_LIMIT: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// On a free port, keeping nothing, ended with its value.
pub(crate) struct RedisServer {
    child: Child,
    url: String,
}

impl RedisServer {
    pub async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = std::env::var("REDIS_SERVER").unwrap_or("redis-server".to_owned());
        let child = Command::new(&program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "these tests need a Redis, and `{program}` cannot be started ({error}); \
                     install redis-server or name one in REDIS_SERVER"
                )
            });
        let server = Self { child, url: format!("redis://127.0.0.1:{port}") };
        let start = Instant::now();
        while connect(&server.url).await.is_err() {
            assert!(start.elapsed() < START_LIMIT, "Redis did not start in {START_LIMIT:?}");
            tokio::time::sleep(ASK_EVERY).await;
        }
        server
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A provider that goes on until the test ends; its address. `changes` is JSON as for
/// `/_sim/model`.
pub(crate) async fn provider(changes: &str) -> String {
    let changes = parse_document(changes.as_bytes()).unwrap();
    let settings = lay(&Settings::default(), &changes).unwrap();
    let server = Server::bind("127.0.0.1:0", Provider::new(settings).unwrap()).await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    tokio::spawn(server.run(std::future::pending()));
    address
}
