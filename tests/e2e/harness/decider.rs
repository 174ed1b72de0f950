//! Deciders that do what a test says.
//!
//! [`BadDecider`] stands in front of a real one. As [`Mode::Good`] it passes bytes on both ways and is not noticed. A new mode holds from the next
//! request on, also on connections that are open: callers are waiting when it strikes.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Good,
    /// Accepts, reads, and says nothing.
    Silent,
    /// Breaks the connection when the request has come.
    ResetAtOnce,
    /// Breaks the connection in the middle of the answer's body.
    ResetInBody,
    /// The answer's second half never comes.
    StuckInBody,
    /// Bytes that are no HTTP.
    NoHttp,
    /// A well-formed grant of everything, from something that is no decider.
    GrantWithoutMarker,
    /// The marker, and a body that is not ours.
    OtherJson,
    NoJson,
    Empty,
    ServerError,
    /// The grant comes after the gateway's time-out.
    Late,
}

/// Answers what the test says, when the test says it.
pub struct HandDecider {
    pub address: String,
    asks: mpsc::Receiver<Ask>,
}

/// A gateway that waits.
pub struct Ask {
    answer: oneshot::Sender<String>,
}

pub struct BadDecider {
    pub address: String,
    mode: watch::Sender<Mode>,
}

const GRANT: &str = r#"{"now_us":1,"granted":[{"class":"otp","n":1000},{"class":"marketing","n":1000}],"wait_us":{},"reason":{},"penalty_us":0}"#;
const MARKER: &str = "x-weir-decider: 1\r\n";

impl BadDecider {
    /// `real`: the address of the decider behind it.
    pub async fn before(real: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (mode, current) = watch::channel(Mode::Good);
        let real = real.to_owned();
        tokio::spawn(async move {
            loop {
                let (caller, _) = listener.accept().await.expect("a caller");
                tokio::spawn(serve(caller, current.clone(), real.clone()));
            }
        });
        Self { address, mode }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl HandDecider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (asked, asks) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let (gateway, _) = listener.accept().await.expect("a gateway");
                tokio::spawn(by_hand(gateway, asked.clone()));
            }
        });
        Self { address, asks }
    }

    pub async fn asked(&mut self) -> Ask {
        let ask = tokio::time::timeout(Duration::from_secs(5), self.asks.recv()).await;
        ask.expect("a gateway asks").expect("the decider runs")
    }

    /// Nobody has asked since.
    pub fn is_left_alone(&mut self) -> bool {
        self.asks.try_recv().is_err()
    }
}

impl Ask {
    pub fn answer(self, body: &str) {
        let text = answer("200 OK", MARKER, body);
        self.answer.send(text).expect("the gateway still waits");
    }
}

async fn by_hand(mut gateway: TcpStream, asked: mpsc::Sender<Ask>) {
    let mut bytes = [0; 16_384];
    while let Ok(1..) = gateway.read(&mut bytes).await {
        let (answer, answered) = oneshot::channel();
        if asked.send(Ask { answer }).await.is_err() {
            return;
        }
        let Ok(answer) = answered.await else { return };
        if gateway.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Asks and answers are small and one at a time on a connection: what can be read is one of them.
async fn serve(mut caller: TcpStream, mode: watch::Receiver<Mode>, real: String) {
    let mut decider = None;
    let mut bytes = [0; 16_384];
    while let Ok(n @ 1..) = caller.read(&mut bytes).await {
        let mode = *mode.borrow();
        let answer = match mode {
            Mode::Silent => continue,
            Mode::ResetAtOnce => return reset(caller),
            Mode::Good => match pass_on(&mut decider, &real, &bytes[..n]).await {
                Ok(answer) => answer,
                Err(_) => return,
            },
            bad => bad_answer(bad).into_bytes(),
        };
        if mode == Mode::Late {
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        if caller.write_all(&answer).await.is_err() {
            return;
        }
        if mode == Mode::ResetInBody {
            // The first half should be on its way before the reset overtakes it.
            tokio::time::sleep(Duration::from_millis(2)).await;
            return reset(caller);
        }
    }
}

async fn pass_on(
    decider: &mut Option<TcpStream>,
    real: &str,
    ask: &[u8],
) -> std::io::Result<Vec<u8>> {
    let connection = match decider {
        Some(connection) => connection,
        None => decider.insert(TcpStream::connect(real).await?),
    };
    connection.write_all(ask).await?;
    let mut answer = vec![0; 16_384];
    let n = connection.read(&mut answer).await?;
    answer.truncate(n);
    Ok(answer)
}

fn bad_answer(mode: Mode) -> String {
    match mode {
        Mode::ResetInBody | Mode::StuckInBody => {
            format!("HTTP/1.1 200 OK\r\n{MARKER}content-length: 1000\r\n\r\n{GRANT}")
        }
        Mode::NoHttp => "\u{1}\u{2} no HTTP at all\r\n\r\n".to_owned(),
        Mode::GrantWithoutMarker => answer("200 OK", "", GRANT),
        Mode::OtherJson => answer("200 OK", MARKER, r#"{"granted":"all of them"}"#),
        Mode::NoJson => answer("200 OK", MARKER, "<html>\u{0}</html>"),
        Mode::Empty => answer("200 OK", MARKER, ""),
        Mode::ServerError => answer("500 Internal Server Error", MARKER, GRANT),
        Mode::Good | Mode::Silent | Mode::ResetAtOnce | Mode::Late => {
            answer("200 OK", MARKER, GRANT)
        }
    }
}

fn answer(status: &str, marker: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{marker}content-length: {length}\r\n\r\n{body}")
}

/// Closes with RST instead of FIN.
pub fn reset(caller: TcpStream) {
    let caller = caller.into_std().expect("a socket");
    let now = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = libc::socklen_t::try_from(size_of_val(&now)).expect("a small size");
    // SAFETY: the option's value is a live `linger` of the size given.
    unsafe {
        use std::os::fd::AsRawFd;
        let value = (&raw const now).cast();
        libc::setsockopt(caller.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size);
    }
}
