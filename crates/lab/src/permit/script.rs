//! Limiters that are one script on Redis' clock.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script};
use tokio::time::sleep;

/// How long a sender holds back when Redis does not answer.
const WHEN_AWAY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterWait {
    /// A place was reserved.
    Go,
    AskAgain,
}

pub(crate) struct Scripted {
    connection: MultiplexedConnection,
    script: Script,
    key: &'static str,
    arguments: Vec<u64>,
    /// The script wants a name for each request: this, and a number.
    sender: Option<String>,
    asked: u64,
    after_wait: AfterWait,
}

impl Scripted {
    pub fn token_bucket(connection: MultiplexedConnection, per_s: u32, capacity: u64) -> Self {
        let script = include_str!("../../lua/token_bucket.lua");
        let bucket = Self::new(connection, script, "bucket", vec![per_s.into(), capacity]);
        Self { after_wait: AfterWait::Go, ..bucket }
    }

    pub fn sliding_log(connection: MultiplexedConnection, limit: u32, sender: &str) -> Self {
        let script = include_str!("../../lua/sliding_log.lua");
        let log = Self::new(connection, script, "log", vec![limit.into(), 1_000_000]);
        Self { sender: Some(sender.to_owned()), ..log }
    }

    pub fn gcra(connection: MultiplexedConnection, per_s: u32, burst: u64) -> Self {
        let interval_us = 1_000_000_u32.div_ceil(per_s);
        let script = include_str!("../../lua/gcra.lua");
        Self::new(connection, script, "tat", vec![interval_us.into(), burst])
    }

    fn new(
        connection: MultiplexedConnection,
        script: &str,
        key: &'static str,
        arguments: Vec<u64>,
    ) -> Self {
        Self {
            connection,
            script: Script::new(script),
            key,
            arguments,
            sender: None,
            asked: 0,
            after_wait: AfterWait::AskAgain,
        }
    }

    pub async fn pass(&mut self) {
        loop {
            match self.ask().await {
                Ok(0) => return,
                Ok(wait_us) => sleep(Duration::from_micros(wait_us)).await,
                Err(_) => {
                    sleep(WHEN_AWAY).await;
                    continue;
                }
            }
            if self.after_wait == AfterWait::Go {
                return;
            }
        }
    }

    async fn ask(&mut self) -> RedisResult<u64> {
        self.asked += 1;
        let mut call = self.script.key(self.key);
        call.arg(&self.arguments);
        if let Some(sender) = &self.sender {
            call.arg(format!("{sender}-{}", self.asked));
        }
        call.invoke_async(&mut self.connection).await
    }
}
