//! A real Redis of the test's own: on a free port, in a directory of its own, keeping nothing, ended
//! with its value.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
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
        Self::start_on(free_port())
    }

    pub fn start_on(port: u16) -> Self {
        Self::start_on_with(port, &[])
    }

    /// With more of `redis-server`'s options.
    pub fn start_on_with(port: u16, options: &[&str]) -> Self {
        let port_text = port.to_string();
        let mut all = vec!["--port", &port_text, "--save", "", "--appendonly", "no"];
        all.extend(options);
        let server = Self::spawn(port, &all);
        server.until_it_answers();
        server
    }

    /// With these options only; returns when the port is open.
    pub fn spawn(port: u16, options: &[&str]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or("redis-server".to_owned());
        let child = Command::new(&program)
            .args(options)
            .args(["--bind", "127.0.0.1", "--loglevel", "warning"])
            .args(["--dir", &directory(port).display().to_string()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "these tests need a Redis, and `{program}` cannot be started ({error}); \
                     install redis-server or name one in REDIS_SERVER"
                )
            });
        let mut server = Self { child, port };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "it ended; told {options:?}");
            assert!(Instant::now() < deadline, "Redis did not start in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Any command, words apart by spaces; its error as text.
    pub async fn tell(&self, command: &str) -> Result<redis::Value, String> {
        let mut words = command.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        let mut raw = self.client().get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut raw).await.map_err(|error| error.to_string())
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
        let deadline = Instant::now() + PATIENCE;
        while client
            .get_connection_with_timeout(PATIENCE)
            .and_then(|mut connection| redis::cmd("PING").query::<()>(&mut connection))
            // One that wants a password first answers too.
            .is_err_and(|error| error.is_io_error())
        {
            assert!(Instant::now() < deadline, "Redis did not start in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(directory(self.port));
    }
}

/// Free now, and with the one that Redis Cluster uses besides, 10000 above. Below the ports that the
/// system hands out, and never the same twice.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = std::process::id() % 500 * 20;
    for _ in 0..2_000 {
        let port = 11_000 + (first as u16 + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
    panic!("no free port");
}

/// A directory for whatever has this port.
pub fn directory(port: u16) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-{port}"));
    fs::create_dir_all(&path).unwrap();
    path
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
