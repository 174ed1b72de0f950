//! `weir serve` as a process: how it starts, is configured, drains and ends.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use crate::{redis_server::RedisServer, tls};

/// For things that take milliseconds, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(10);
const ASK: &str =
    r#"{"limit":"sms-acct-main","policy":"x","gateway":"g","wants":[{"class":"otp","n":1}]}"#;

fn policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/policies/accepted/sample.yaml")
}

/// A file in cargo's folder for tests, named after its test.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

pub struct Weir {
    child: Child,
    log: Receiver<String>,
    seen: String,
}

impl Weir {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_weir"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
            program.env_remove(name);
        }
        let mut child = program
            .arg("serve")
            .args(arguments)
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (lines, log) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        Self { child, log, seen: String::new() }
    }

    /// On a port of its own, with the sample policy.
    pub fn serving(arguments: &[&str]) -> (Self, SocketAddr) {
        let policy = policy().display().to_string();
        let mut all = vec!["--policy", &policy, "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        let mut weir = Self::start(&all, &[]);
        let address = weir.address();
        (weir, address)
    }

    /// What it says that it listens on.
    fn address(&mut self) -> SocketAddr {
        let line = self.until("serving listen=");
        let rest = line.split("listen=").nth(1).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    }

    /// The first line of the log with this text.
    pub fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.log.recv_timeout(left).unwrap_or_else(|_| {
                panic!("no `{text}` in its log:\n{}", self.seen);
            });
            self.seen.push_str(&line);
            self.seen.push('\n');
            if line.contains(text) {
                return line;
            }
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end; its log:\n{}", self.seen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The log, once it has ended.
    fn log(mut self) -> String {
        self.ends();
        self.seen.extend(self.log.iter().map(|line| line + "\n"));
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

pub fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// The whole reply, status line first.
pub fn rest(mut connection: TcpStream) -> String {
    let mut reply = String::new();
    connection.read_to_string(&mut reply).unwrap();
    reply
}

pub fn get(address: SocketAddr, path: &str) -> String {
    let mut connection = connect(address);
    connection.write_all(head("GET", path, 0).as_bytes()).unwrap();
    rest(connection)
}

#[test]
fn told_to_end_it_finishes_what_is_in_flight_and_takes_no_more() {
    for signal in ["-TERM", "-INT"] {
        let (mut weir, address) = Weir::serving(&["--drain", "10s"]);
        let mut connection = connect(address);
        let (first, second) = ASK.split_at(ASK.len() / 2);
        connection.write_all(head("POST", "/v1/decide", ASK.len()).as_bytes()).unwrap();
        connection.write_all(first.as_bytes()).unwrap();
        // It is being served: a request behind it on another connection has been.
        assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
        weir.signal(signal);
        weir.until(&signal.replace('-', "SIG"));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_ok() {
            assert!(Instant::now() < deadline, "still accepts");
            std::thread::sleep(Duration::from_millis(5));
        }
        connection.write_all(second.as_bytes()).unwrap();
        let reply = rest(connection);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.contains(r#""granted":[{"class":"otp","n":1}]"#), "{reply}");
        assert_eq!(weir.ends().code(), Some(0));
    }
}

#[test]
fn a_request_that_never_ends_holds_the_end_up_no_longer_than_the_drain() {
    let (mut weir, address) = Weir::serving(&["--drain", "50ms"]);
    let mut connection = connect(address);
    connection.write_all(head("POST", "/v1/decide", ASK.len()).as_bytes()).unwrap();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    weir.signal("-TERM");
    assert_eq!(weir.ends().code(), Some(0));
    assert!(weir.log().contains("requests were still in flight"));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let config = format!(
        "policy: {}\nlisten: 127.0.0.1:1\nstore_deadline: 7ms\ndrain: 3s\nstore: memory\n",
        policy().display()
    );
    let config = file("precedence.yaml", &config).display().to_string();
    let environment = [
        ("WEIR_CONFIG", config.as_str()),
        ("WEIR_LISTEN", "not used"),
        ("WEIR_STORE_DEADLINE", "9ms"),
    ];
    let mut weir = Weir::start(&["--listen", "127.0.0.1:0"], &environment);
    let address = weir.address();
    assert_ne!(address.port(), 1);
    assert!(weir.seen.contains("deadline=9ms"), "{}", weir.seen);
    assert!(weir.seen.contains("sample.yaml"), "{}", weir.seen);
}

fn check_refused(arguments: &[&str], code: i32, expected: &str) {
    let mut weir = Weir::start(arguments, &[]);
    assert_eq!(weir.ends().code(), Some(code), "{arguments:?}");
    let log = weir.log();
    assert!(log.contains(expected), "{arguments:?} says {log}");
    assert!(!log.contains("no-secret"), "{log}");
}

#[test]
fn what_it_cannot_use_ends_it_with_2_and_a_sentence() {
    let policy = policy().display().to_string();
    let unknown = file("unknown.yaml", "policy: x\nport: 8080\n").display().to_string();
    check_refused(&[], 2, "no policy; allowed: a file by --policy, WEIR_POLICY");
    check_refused(&["--config", &unknown], 2, "unknown field `port`");
    check_refused(&["--config", "no-such.yaml"], 2, "no-such.yaml: cannot be read: ");
    check_refused(&["--policy", "no-such.yaml"], 2, "no-such.yaml: cannot be read: ");
    check_refused(
        &["--policy", &policy, "--store-deadline", "60ms"],
        2,
        "store_deadline: `60ms` is not allowed; allowed: 1ms to the policy's decider.timeout of 50ms",
    );
    check_refused(&["--policy", &policy, "--store", "file"], 2, "store: `file` is not allowed");
    let certificate = tls::Authority::new("ours").pem();
    let certificate = file("authority.pem", &certificate).display().to_string();
    let (plain, safe) = ("redis://:no-secret@h", "rediss://:no-secret@h");
    for (store, more, expected) in [
        (plain, ["--store-ca", "no-such.pem"], "no-such.pem: cannot be read: "),
        (plain, ["--store-ca", &certificate], "but here certificates without TLS"),
        (safe, ["--store-key", &policy], "allowed: store_cert and store_key together"),
        (safe, ["--store-ca", &policy], "allowed: a PEM file with a certificate in it"),
    ] {
        let all = [&["--policy", &policy, "--store", store][..], &more].concat();
        check_refused(&all, 2, expected);
    }
    check_refused(&["--no-such-flag"], 2, "unexpected argument '--no-such-flag'");
}

#[test]
fn a_taken_port_ends_it_with_1_and_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let policy = policy().display().to_string();
    let expected = format!("cannot listen on {address}: Address already in use");
    check_refused(&["--policy", &policy, "--listen", &address], 1, &expected);
}

#[test]
fn it_starts_without_its_redis_and_finds_it_later() {
    let port = RedisServer::start().port();
    let store = format!("redis://:no-secret@127.0.0.1:{port}/0");
    let (mut weir, address) = Weir::serving(&["--store", &store]);
    weir.until("Redis cannot be reached");
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    let unready = get(address, "/readyz");
    assert!(unready.starts_with("HTTP/1.1 503"), "{unready}");
    assert!(unready.contains("x-weir-decider: 1"), "{unready}");
    assert!(unready.contains(r#"{"error":"the store cannot be reached: "#), "{unready}");

    let _redis = RedisServer::start_on_with(port, &["--requirepass", "no-secret"]);
    weir.until("connected to Redis");
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
    weir.signal("-TERM");
    let log = weir.log();
    assert!(log.contains("store=redis://***@127.0.0.1:"), "{log}");
    assert!(!log.contains("no-secret"), "{log}");
}

#[test]
fn who_comes_when_all_connections_are_taken_is_told_at_once() {
    let (_weir, address) = Weir::serving(&["--connections", "2"]);
    let mut first = connect(address);
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: weir\r\n\r\n").unwrap();
    let mut start = [0; 12];
    first.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let second = connect(address);
    // It is closed, and does not wait for a place: an end, or a reset.
    let turned_away = || {
        let mut third = connect(address);
        matches!(third.read(&mut [0]), Ok(0)) || third.write_all(b"x").is_err()
    };
    assert!((0..50).all(|_| turned_away()), "a third connection was served");
    drop(second);
    let deadline = Instant::now() + PATIENCE;
    let metrics = loop {
        let mut reply = String::new();
        let mut connection = connect(address);
        let _ = connection.write_all(head("GET", "/metrics", 0).as_bytes());
        if connection.read_to_string(&mut reply).is_ok() && reply.starts_with("HTTP/1.1 200") {
            break reply;
        }
        assert!(Instant::now() < deadline, "no place after one became free");
    };
    assert!(metrics.contains("\nweir_connections 2\n"), "{metrics}");
    let refused =
        metrics.lines().find_map(|line| line.strip_prefix("weir_connections_refused_total "));
    assert!(refused.unwrap().parse::<u64>().unwrap() >= 50, "{metrics}");
}

/// RFC 9113, 3.4: the client's preface and SETTINGS are answered by SETTINGS.
#[test]
fn http_2_is_served_without_tls_on_the_same_port() {
    let (_weir, address) = Weir::serving(&[]);
    let mut connection = connect(address);
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut frame = [0; 9];
    connection.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "type SETTINGS: {frame:?}");
}

#[test]
fn the_log_can_be_json() {
    let policy = policy().display().to_string();
    let arguments = ["--policy", &policy, "--listen", "127.0.0.1:0", "--log-format", "json"];
    let mut weir = Weir::start(&arguments, &[]);
    let line = weir.until("\"serving\"");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["store"], "memory");
    weir.signal("-TERM");
    assert_eq!(weir.ends().code(), Some(0));
}
