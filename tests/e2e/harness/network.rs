//! The network between gateways and a decider, and what can be wrong with it.
//!
//! Bytes go through as they are until a test says otherwise; a fault strikes all connections at once,
//! those that are open and idle too. [`super::decider`] has deciders that answer wrongly; here the
//! decider is right and its words do not arrive, or not as they were said.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::decider::reset;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Each piece of an answer is late by this much.
    Delay(Duration),
    /// Nothing arrives: no byte, and no answer to who wants to connect.
    BlackHole,
    /// Every connection is broken, new ones at once.
    Reset,
    /// What was open when it struck is dead and nobody says so; new connections are fine.
    HalfOpen,
    /// As long as the answer, and nothing of it.
    Garbage,
    /// The head at once, then a byte at a time.
    SlowBody,
}

pub struct Network {
    pub address: String,
    /// With the number of the strike, which tells connections that are older.
    fault: watch::Sender<(u64, Fault)>,
}

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 64;
const PIECE: usize = 16_384;
const BETWEEN_BYTES: Duration = Duration::from_millis(5);

impl Network {
    /// `decider`: `HOST:PORT` at its other end.
    pub async fn to(decider: &str) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = socket.listen(BACKLOG).expect("a listening socket");
        let address = listener.local_addr().expect("an address").to_string();
        let (fault, current) = watch::channel((0, Fault::None));
        tokio::spawn(accept(listener, decider.to_owned(), current));
        Self { address, fault }
    }

    pub fn set(&self, fault: Fault) {
        self.fault.send_modify(|now| *now = (now.0 + 1, fault));
    }
}

async fn accept(listener: TcpListener, decider: String, mut fault: watch::Receiver<(u64, Fault)>) {
    let address = listener.local_addr().expect("an address");
    loop {
        if fault.borrow_and_update().1 == Fault::BlackHole {
            // With as many waiting as may, the kernel does not answer who else wants to connect.
            let mut waiting = Vec::new();
            for _ in 0..2 * BACKLOG {
                let one = TcpStream::connect(address);
                match tokio::time::timeout(Duration::from_millis(20), one).await {
                    Ok(Ok(one)) => waiting.push(one),
                    _ => break,
                }
            }
            let over = fault.wait_for(|now| now.1 != Fault::BlackHole).await.is_ok();
            if !over {
                return;
            }
        }
        tokio::select! {
            changed = fault.changed() => if changed.is_err() { return },
            caller = listener.accept() => {
                let (caller, _) = caller.expect("a caller");
                tokio::spawn(carry(caller, decider.clone(), fault.clone()));
            }
        }
    }
}

/// Until either side ends it, or a fault does.
async fn carry(mut gateway: TcpStream, decider: String, mut fault: watch::Receiver<(u64, Fault)>) {
    let born = fault.borrow_and_update().0;
    let Ok(mut decider) = TcpStream::connect(&decider).await else { return };
    let _ = (gateway.set_nodelay(true), decider.set_nodelay(true));
    let (mut asked, mut answered) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let (strike, now) = *fault.borrow_and_update();
        if now == Fault::Reset {
            return reset(gateway);
        }
        let dead = now == Fault::BlackHole || (now == Fault::HalfOpen && strike > born);
        tokio::select! {
            changed = fault.changed() => if changed.is_err() { return },
            read = gateway.read(&mut asked) => {
                let Ok(n @ 1..) = read else { return };
                if !dead && decider.write_all(&asked[..n]).await.is_err() {
                    return;
                }
            }
            read = decider.read(&mut answered), if !dead => {
                let Ok(n @ 1..) = read else { return };
                if deliver(&mut gateway, &answered[..n], now).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn deliver(gateway: &mut TcpStream, answer: &[u8], fault: Fault) -> std::io::Result<()> {
    match fault {
        Fault::Delay(by) => tokio::time::sleep(by).await,
        Fault::Garbage => {
            let garbage: Vec<u8> = answer.iter().map(|byte| byte ^ 0xa5).collect();
            return gateway.write_all(&garbage).await;
        }
        Fault::SlowBody => {
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
            let (head, body) = answer.split_at(end.map_or(0, |at| at + 4));
            gateway.write_all(head).await?;
            for byte in body {
                tokio::time::sleep(BETWEEN_BYTES).await;
                gateway.write_all(&[*byte]).await?;
            }
            return Ok(());
        }
        _ => {}
    }
    gateway.write_all(answer).await
}
