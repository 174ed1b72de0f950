//! A real Redis of the test's own: on a free port, keeping nothing, ended with its value.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use decider::store::{Store, redis::target::Target};

/// For a start, or a recovery that has its own, tighter, assertion.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct RedisServer {
    child: Child,
    port: u16,
}

impl RedisServer {
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_on(port)
    }

    pub fn start_on(port: u16) -> Self {
        Self::start_on_with(port, &[])
    }

    /// With more of `redis-server`'s options.
    pub fn start_on_with(port: u16, options: &[&str]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or("redis-server".to_owned());
        let child = Command::new(&program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "these tests need a Redis, and `{program}` cannot be started ({error}); \
                     install redis-server or name one in REDIS_SERVER"
                )
            });
        let server = Self { child, port };
        server.until_it_answers();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub fn target(&self) -> Target {
        target(self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).unwrap()
    }

    /// SIGSTOP: there, but silent.
    pub fn stop(&self) {
        self.signal("-STOP");
    }

    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    pub async fn keys(&self) -> Vec<String> {
        let mut raw = self.client().get_multiplexed_async_connection().await.unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut raw).await.unwrap();
        assert!(!keys.is_empty(), "no keys at all");
        keys
    }

    pub async fn check_every_key_expires(&self) {
        let mut raw = self.client().get_multiplexed_async_connection().await.unwrap();
        for key in self.keys().await {
            let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut raw).await.unwrap();
            assert!(left > 0, "{key} has no expiry ({left})");
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success(), "kill {signal}");
    }

    fn until_it_answers(&self) {
        let client = self.client();
        let deadline = std::time::Instant::now() + PATIENCE;
        while client
            .get_connection_with_timeout(PATIENCE)
            .and_then(|mut connection| redis::cmd("PING").query::<()>(&mut connection))
            // One that wants a password first answers too.
            .is_err_and(|error| error.is_io_error())
        {
            assert!(std::time::Instant::now() < deadline, "Redis did not start in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Redis on this port, whether it is there or not.
pub fn target(port: u16) -> Target {
    Target::parse(&format!("redis://127.0.0.1:{port}/0"), None).unwrap()
}

/// Waits until the store has its first connection.
pub async fn connected(store: &dyn Store) {
    until_it_works(store, PATIENCE).await;
}

/// Polls until the store answers; fails after `patience`.
pub async fn until_it_works(store: &dyn Store, patience: Duration) {
    let deadline = tokio::time::Instant::now() + patience;
    while decider::store::within(Duration::from_millis(50), store.ping()).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "no answer within {patience:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
