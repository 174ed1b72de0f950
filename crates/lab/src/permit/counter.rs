//! A counter per second of the senders' clocks, in the two ways it is usually written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult};
use tokio::time::sleep;

use crate::design::CONTRACT_PER_S;

/// Beyond the second itself, so that no clock's difference loses a key that is in use.
const KEPT_S: i64 = 5;

/// "v2": reads, compares, then counts; unlimited when Redis fails; when full, asks again and again.
pub(crate) struct CheckThenCount {
    connection: MultiplexedConnection,
}

impl CheckThenCount {
    pub fn new(connection: MultiplexedConnection) -> Self {
        Self { connection }
    }

    pub async fn pass(&mut self) {
        while !self.has_room().await.unwrap_or(true) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn has_room(&mut self) -> RedisResult<bool> {
        let key = key("v2");
        let seen: Option<u32> = self.connection.get(&key).await?;
        if seen.unwrap_or(0) >= CONTRACT_PER_S {
            return Ok(false);
        }
        let _: u32 = self.connection.incr(&key, 1).await?;
        let _: () = self.connection.expire(&key, KEPT_S).await?;
        Ok(true)
    }
}

/// "A": counts first and looks at what it got, so no two can take the same place.
pub(crate) struct CountFirst {
    connection: MultiplexedConnection,
}

impl CountFirst {
    pub fn new(connection: MultiplexedConnection) -> Self {
        Self { connection }
    }

    pub async fn pass(&mut self) {
        while !self.counted().await.unwrap_or(false) {
            sleep(until_next_second()).await;
        }
    }

    async fn counted(&mut self) -> RedisResult<bool> {
        let key = key("a");
        let place: u32 = self.connection.incr(&key, 1).await?;
        if place == 1 {
            let _: () = self.connection.expire(&key, KEPT_S).await?;
        }
        Ok(place <= CONTRACT_PER_S)
    }
}

fn key(design: &str) -> String {
    format!("sent:{design}:{}", since_epoch().as_secs())
}

fn until_next_second() -> Duration {
    Duration::from_secs(1) - Duration::from_nanos(since_epoch().subsec_nanos().into())
}

fn since_epoch() -> Duration {
    // A clock before 1970 would only put everything into one key.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
