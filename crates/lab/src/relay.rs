//! The way to the provider: a relay that delays what is sent, and never the same twice.
//!
//! Promise: every exchange is late by an amount of its own, exponential with a quarter of `spread`
//! as its mean and never more than `spread`; nothing is lost or reordered within a connection. Direct
//! senders and gateways go the same way, so a comparison is fair. Seeded; but which exchange gets
//! which delay depends on the order in which they come.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request of the lab fits; a longer one is delayed piece by piece.
const PIECE: usize = 16 * 1024;

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// From a free port of 127.0.0.1 to `provider`.
    pub async fn start(provider: &str, spread: Duration, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let delays =
            Arc::new(Mutex::new(Delays { random: fastrand::Rng::with_seed(seed), spread }));
        let provider = provider.to_owned();
        let accepting = tokio::spawn(async move {
            while let Ok((sender, _)) = listener.accept().await {
                let (provider, delays) = (provider.clone(), Arc::clone(&delays));
                // A broken connection is the sender's to see and to report.
                tokio::spawn(async move { carry(sender, &provider, &delays).await.ok() });
            }
        });
        Ok(Self { address, accepting })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[derive(Debug)]
struct Delays {
    random: fastrand::Rng,
    spread: Duration,
}

impl Delays {
    fn next(&mut self) -> Duration {
        // 1 − u lies in (0, 1]: its logarithm is finite.
        let exponential = -(1.0 - self.random.f64()).ln() / 4.0;
        self.spread.mul_f64(exponential.min(1.0))
    }
}

async fn carry(sender: TcpStream, provider: &str, delays: &Mutex<Delays>) -> io::Result<()> {
    let upstream = TcpStream::connect(provider).await?;
    sender.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from_sender, mut to_sender) = sender.into_split();
    let (mut from_provider, to_provider) = upstream.into_split();
    let there = late(from_sender, to_provider, delays);
    let back = tokio::io::copy(&mut from_provider, &mut to_sender);
    // Either side's end is the end: HTTP/1.1 does not go on with half a connection.
    tokio::select! {
        done = there => done,
        done = back => done.map(drop),
    }
}

async fn late(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delays: &Mutex<Delays>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        let delay = delays.lock().map_or(Duration::ZERO, |mut delays| delays.next());
        tokio::time::sleep(delay).await;
        to.write_all(&piece[..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_and_bounded() {
        let spread = Duration::from_millis(20);
        let mut delays = Delays { random: fastrand::Rng::with_seed(1), spread };
        let drawn: Vec<Duration> = (0..1_000).map(|_| delays.next()).collect();
        assert!(drawn.iter().all(|delay| *delay <= spread));
        let mean = drawn.iter().sum::<Duration>() / 1_000;
        // A quarter of the spread, less the part beyond it (e⁻⁴).
        assert!((4_500..5_300).contains(&mean.as_micros()), "{mean:?}");
    }
}
