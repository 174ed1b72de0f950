//! One connection to Redis that mends itself.
//!
//! Promise: nobody waits for a reconnect. Without a connection a call fails at once; one task
//! brings it back, within [`BACKOFF`] and a round trip of Redis' return.
//!
//! Where it trips, and how it recovers:
//! - Redis is gone: a call fails, or the heartbeat does, and the connection is given up.
//! - Redis is there but silent (stopped, cut off without a reset): the caller's deadline drops its
//!   call half-way; that too gives the connection up, so that calls do not pile up behind it. A new
//!   one counts only when Redis has answered on it.
//! - Redis answers, but late, again and again: at most one new connection per [`BACKOFF`].

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::redis::{
    ErrorKind, RedisError, RedisResult, RetryMethod, ServerErrorKind, aio::MultiplexedConnection,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{info, warn};

use super::source::{Source, ping};
use crate::{sparse::Sparse, store::StoreError};

/// Between two attempts to connect.
const BACKOFF: Duration = Duration::from_millis(200);
/// For an attempt, up to the first answer: a TLS connection takes several round trips.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Between looks at a connection that nobody may be using.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// For the answer to such a look.
const PATIENCE: Duration = Duration::from_millis(250);

pub(super) struct Link {
    shared: Arc<Shared>,
    mending: tokio::task::AbortHandle,
}

struct Shared {
    current: Mutex<Current>,
    /// The newest connection that failed someone.
    suspect: watch::Sender<u64>,
}

struct Current {
    /// Counts connections, so that a late failure of an old one does not end its successor.
    generation: u64,
    connection: Result<MultiplexedConnection, String>,
}

/// The right to use the connection for one call. Dropped before its end, it gives the connection up.
pub(super) struct Lease<'a> {
    shared: &'a Shared,
    generation: u64,
    connection: MultiplexedConnection,
    ended: bool,
}

impl Link {
    /// Connects in the background, now and whenever it must; call within a tokio runtime.
    pub fn start(source: Source) -> Self {
        let shared = Arc::new(Shared {
            current: Mutex::new(Current {
                generation: 0,
                connection: Err("not connected yet".to_owned()),
            }),
            suspect: watch::Sender::new(0),
        });
        let task = tokio::spawn(mend(source, Arc::clone(&shared)));
        Self { shared, mending: task.abort_handle() }
    }

    pub fn is_up(&self) -> bool {
        self.shared.with(|current| current.connection.is_ok())
    }

    pub fn lease(&self) -> Result<Lease<'_>, StoreError> {
        let (generation, connection) = self.shared.with(|current| {
            let connection = current.connection.clone();
            (current.generation, connection)
        });
        Ok(Lease {
            shared: &self.shared,
            generation,
            connection: connection.map_err(StoreError::Unreachable)?,
            ended: false,
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.mending.abort();
    }
}

impl Lease<'_> {
    pub fn connection(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }

    /// Gives the connection back, or up if the outcome says that it is broken.
    pub fn end<T>(mut self, outcome: &RedisResult<T>) {
        self.ended = !outcome.as_ref().is_err_and(is_broken);
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.suspect.send_if_modified(|newest| {
                let newer = self.generation > *newest;
                *newest = self.generation.max(*newest);
                newer
            });
        }
    }
}

impl Shared {
    fn with<T>(&self, use_it: impl FnOnce(&mut Current) -> T) -> T {
        // Every change is complete in itself.
        use_it(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a call's failure is to a store.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    let text = error.to_string();
    if is_broken(error) { StoreError::Unreachable(text) } else { StoreError::Refused(text) }
}

/// Would another connection help?
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.retry_method(),
            RetryMethod::Reconnect | RetryMethod::ReconnectFromInitialConnections
        )
        // After a failover the name may lead to the new primary: a replica now, or a primary that
        // lost its replicas and so perhaps its office.
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
        || error.code() == Some("NOREPLICAS")
}

/// Connects, watches, and connects again, for ever.
async fn mend(mut source: Source, shared: Arc<Shared>) {
    let name = source.name();
    let mut suspects = shared.suspect.subscribe();
    let mut told = String::new();
    let (found_log, lost_log) = (Sparse::default(), Sparse::default());
    loop {
        let next_attempt = Instant::now() + BACKOFF;
        match connect(&mut source).await {
            Ok(connection) => {
                if found_log.is_due() {
                    info!(name, "connected to Redis");
                }
                let generation = shared.with(|current| {
                    current.generation += 1;
                    current.connection = Ok(connection.clone());
                    current.generation
                });
                let why = tokio::select! {
                    _ = suspects.wait_for(|newest| *newest >= generation) => "a call failed".to_owned(),
                    why = silence(connection) => why,
                };
                if lost_log.is_due() {
                    warn!(name, why, "gave up the connection to Redis");
                }
                shared.with(|current| current.connection = Err(why));
                told.clear();
            }
            Err(why) => {
                if why != told && lost_log.is_due() {
                    warn!(name, why, "Redis cannot be reached; trying on");
                    told.clone_from(&why);
                }
                shared.with(|current| current.connection = Err(why));
            }
        }
        sleep_until(next_attempt).await;
    }
}

async fn connect(source: &mut Source) -> Result<MultiplexedConnection, String> {
    match timeout(ATTEMPT, source.connect()).await {
        Ok(outcome) => outcome.map_err(|error: RedisError| error.to_string()),
        Err(_) => Err(format!("no answer within {ATTEMPT:?}")),
    }
}

/// Returns when the connection no longer answers, and why.
async fn silence(mut connection: MultiplexedConnection) -> String {
    loop {
        sleep(HEARTBEAT).await;
        match timeout(PATIENCE, ping(&mut connection)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("no answer within {PATIENCE:?}"),
        }
    }
}
