//! Who may hold a connection to the decider, and for how long without sense.
//!
//! Promise: a fixed number of connections; who comes when all are taken is closed at once, so that a
//! gateway learns it at once and does not wait. A connection on which a request has begun and its
//! reply does not follow within [`ANSWER_WAIT`] is closed, however slowly the bytes keep coming: a
//! body has a shorter time of its own ([`crate::http`]), so what is left is a head that never ends.
//! One on which nothing happens is closed after [`IDLE_WAIT`], which is longer than gateways keep
//! theirs.
//!
//! A request is seen as bytes that come and bytes that go. On HTTP/2 what comes need not be answered,
//! so there, after the first reply, only the longer time holds.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};
use tracing::warn;

use crate::{metrics::ConnectionMetrics, sparse::Sparse};

/// From a request's first byte to the first of its reply.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// With nothing to be answered.
const IDLE_WAIT: Duration = Duration::from_secs(600);

/// Connections, if nothing else is set: below the 1024 files that a process may often open.
pub const CONNECTIONS: u32 = 1_000;
pub const CONNECTIONS_MAX: u32 = 100_000;

/// A listener that counts.
pub struct Doors {
    listener: TcpListener,
    free: Arc<Semaphore>,
    metrics: ConnectionMetrics,
    log: Sparse,
}

/// A connection that is closed when it makes no sense any more.
pub struct Guarded<S = TcpStream> {
    stream: S,
    /// What has happened last: a request began, or something was answered.
    since: Instant,
    is_asked: bool,
    /// HTTP/2, and its first reply has been sent.
    is_lenient: bool,
    is_http_2: Option<bool>,
    /// Fires at, or before, the end of the wait: then it is set anew.
    alarm: Pin<Box<Sleep>>,
    metrics: ConnectionMetrics,
    _place: Option<OwnedSemaphorePermit>,
}

impl Doors {
    pub fn new(listener: TcpListener, connections: u32, metrics: ConnectionMetrics) -> Self {
        let free = Arc::new(Semaphore::new(connections as usize));
        Self { listener, free, metrics, log: Sparse::default() }
    }
}

impl Listener for Doors {
    type Io = Guarded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            let Ok(place) = Arc::clone(&self.free).try_acquire_owned() else {
                self.metrics.refused.inc();
                if self.log.is_due() {
                    warn!(from = %address, "all connections are taken; closed a new one");
                }
                continue;
            };
            // Replies are small: waiting for more to fill a segment would only delay them.
            let _ = stream.set_nodelay(true);
            return (Guarded::new(stream, self.metrics.clone(), Some(place)), address);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl<S> Guarded<S> {
    fn new(stream: S, metrics: ConnectionMetrics, place: Option<OwnedSemaphorePermit>) -> Self {
        metrics.open.inc();
        Self {
            stream,
            since: Instant::now(),
            is_asked: false,
            is_lenient: false,
            is_http_2: None,
            alarm: Box::pin(tokio::time::sleep(IDLE_WAIT)),
            metrics,
            _place: place,
        }
    }

    fn due(&self) -> Instant {
        self.since + if self.is_asked { ANSWER_WAIT } else { IDLE_WAIT }
    }

    fn has_read(&mut self, bytes: &[u8]) {
        let is_http_2 = *self.is_http_2.get_or_insert_with(|| bytes.starts_with(b"PRI"));
        if self.is_lenient && is_http_2 {
            self.since = Instant::now();
        } else if !self.is_asked {
            self.is_asked = true;
            self.since = Instant::now();
            // The alarm may be set for much later.
            let due = self.due();
            if due < self.alarm.deadline() {
                self.alarm.as_mut().reset(due);
            }
        }
    }

    fn has_written(&mut self) {
        self.is_asked = false;
        self.is_lenient = self.is_http_2 == Some(true);
        self.since = Instant::now();
    }

    /// Pending, or an error when the time is up.
    fn poll_time(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            ready!(self.alarm.as_mut().poll(context));
            let due = self.due();
            if due <= Instant::now() {
                self.metrics.cut.inc();
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.alarm.as_mut().reset(due);
        }
    }
}

impl<S> Drop for Guarded<S> {
    fn drop(&mut self) {
        self.metrics.open.dec();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(outcome) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            if outcome.is_ok() && buffer.filled().len() > before {
                self.has_read(&buffer.filled()[before..]);
            }
            return Poll::Ready(outcome);
        }
        self.poll_time(context).map(Err)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.has_written();
        Poll::Ready(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, parts));
        self.has_written();
        Poll::Ready(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    fn guarded() -> (Guarded<DuplexStream>, DuplexStream, ConnectionMetrics) {
        let (ours, theirs) = duplex(1 << 10);
        let metrics = ConnectionMetrics::default();
        (Guarded::new(ours, metrics.clone(), None), theirs, metrics)
    }

    /// Reads until it fails; how long that took.
    async fn read_to_the_end(guarded: &mut Guarded<DuplexStream>) -> Duration {
        let start = Instant::now();
        let mut buffer = [0; 64];
        loop {
            match guarded.read(&mut buffer).await {
                Ok(0) => panic!("the other side has closed"),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    return start.elapsed();
                }
            }
        }
    }

    fn check_about(took: Duration, expected: Duration) {
        assert!(took >= expected && took < expected + Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_never_ends_is_cut_however_it_drips() {
        let (mut guarded, mut theirs, metrics) = guarded();
        let drip = async {
            loop {
                theirs.write_all(b"x").await.unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        let took = tokio::select! {
            took = read_to_the_end(&mut guarded) => took,
            () = drip => unreachable!(),
        };
        check_about(took, ANSWER_WAIT);
        assert_eq!((metrics.cut.get(), metrics.open.get()), (1, 1));
        drop(guarded);
        assert_eq!(metrics.open.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_and_is_answered_may_rest_longer_and_come_again() {
        let (mut guarded, mut theirs, metrics) = guarded();
        let mut buffer = [0; 3];
        for _ in 0..3 {
            theirs.write_all(b"GET").await.unwrap();
            guarded.read_exact(&mut buffer).await.unwrap();
            guarded.write_all(b"200").await.unwrap();
            let rest = tokio::time::timeout(IDLE_WAIT / 2, guarded.read(&mut buffer)).await;
            assert!(rest.is_err(), "cut too early");
        }
        assert_eq!(metrics.cut.get(), 0);
        check_about(read_to_the_end(&mut guarded).await, IDLE_WAIT / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn http_2_need_not_answer_all_that_comes() {
        let (mut guarded, mut theirs, _) = guarded();
        theirs.write_all(b"PRI * HTTP/2.0").await.unwrap();
        guarded.read_exact(&mut [0; 14]).await.unwrap();
        guarded.write_all(b"settings").await.unwrap();
        theirs.write_all(b"ack").await.unwrap();
        check_about(read_to_the_end(&mut guarded).await, IDLE_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_preface_that_never_ends_is_cut() {
        let (mut guarded, mut theirs, _) = guarded();
        theirs.write_all(b"PRI * HT").await.unwrap();
        check_about(read_to_the_end(&mut guarded).await, ANSWER_WAIT);
    }
}
