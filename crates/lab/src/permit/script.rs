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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::queue::connect;
    use crate::testing::RedisServer;

    /// Asks 150 times at once: how many were let go, the first wait of the others, and how long all
    /// of it took.
    async fn asked(mut limiter: Scripted) -> (u64, u64, Duration) {
        let start = Instant::now();
        let (mut went, mut first_wait_us) = (0, 0);
        for _ in 0..150 {
            match limiter.ask().await.unwrap() {
                0 => went += 1,
                wait_us if first_wait_us == 0 => first_wait_us = wait_us,
                _ => {}
            }
        }
        (went, first_wait_us, start.elapsed())
    }

    /// At once, and what the time that it took has earned at `per_s`.
    fn check(went: u64, at_once: u64, per_s: u64, took: Duration) {
        let most = at_once + 1 + per_s * took.as_micros() as u64 / 1_000_000;
        assert!((at_once..=most).contains(&went), "{went} went, {at_once} to {most} may");
    }

    #[tokio::test]
    async fn gcra_lets_its_burst_go_and_then_one_an_interval() {
        let redis = RedisServer::start().await;
        let connection = connect(redis.url()).await.unwrap();
        let (went, wait_us, took) = asked(Scripted::gcra(connection, 90, 5)).await;
        check(went, 5, 90, took);
        assert!((1..=11_112).contains(&wait_us), "{wait_us}");
    }

    #[tokio::test]
    async fn the_log_lets_its_limit_go_in_a_second() {
        let redis = RedisServer::start().await;
        let connection = connect(redis.url()).await.unwrap();
        let (went, wait_us, took) = asked(Scripted::sliding_log(connection, 100, "one")).await;
        // Within the window nothing comes back.
        let per_s = if took < Duration::from_secs(1) { 0 } else { 100 };
        check(went, 100, per_s, took);
        assert!((1..=1_000_000).contains(&wait_us), "{wait_us}");
    }

    #[tokio::test]
    async fn the_bucket_lets_what_was_saved_go_and_reserves_the_rest_in_order() {
        let redis = RedisServer::start().await;
        let connection = connect(redis.url()).await.unwrap();
        let (went, wait_us, took) = asked(Scripted::token_bucket(connection, 100, 50)).await;
        check(went, 50, 100, took);
        assert!((1..=10_000).contains(&wait_us), "{wait_us}");
        let mut behind = Scripted::token_bucket(connect(redis.url()).await.unwrap(), 100, 50);
        // 100 places are reserved before this one.
        let wait_us = behind.ask().await.unwrap();
        let earned_us = took.as_micros() as u64 + 1_000_000;
        assert!(wait_us <= 1_010_000 && wait_us + earned_us >= 1_010_000, "{wait_us}");
    }
}
