//! An at-least-once queue on Redis Streams, as senders use it.
//!
//! Promise: a message leaves the queue when it is acknowledged, and in no other way. One that is
//! given back comes again when its time has come; one whose sender died, after [`VISIBILITY`].

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Script};

/// Far longer than any exchange with the provider, far shorter than anyone waits for a repair.
const VISIBILITY: Duration = Duration::from_secs(30);
const GROUP: &str = "senders";
/// A Redis that does not answer by then has failed the call.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// Connections are what pods have of their own; clones share them.
pub(crate) async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CALL_LIMIT))
        .set_response_timeout(Some(CALL_LIMIT));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Redis' name for it.
    id: String,
    /// Its number within its class.
    pub number: usize,
}

/// One class's queue, in the hands of one consumer.
#[derive(Clone)]
pub(crate) struct Queue {
    stream: String,
    redeliveries: String,
    consumer: String,
    visibility: Duration,
    connection: MultiplexedConnection,
    take_due: Script,
    nack: Script,
}

impl Queue {
    pub async fn open(url: &str, class: &str, consumer: &str) -> RedisResult<Self> {
        let mut connection = connect(url).await?;
        let stream = format!("queue:{{{class}}}");
        let made: RedisResult<()> = redis::cmd("XGROUP")
            .arg(&["CREATE", &stream, GROUP, "0", "MKSTREAM"])
            .query_async(&mut connection)
            .await;
        // Whoever comes first makes the group; BUSYGROUP means somebody did.
        made.or_else(|error| if error.code() == Some("BUSYGROUP") { Ok(()) } else { Err(error) })?;
        Ok(Self {
            redeliveries: format!("redeliveries:{{{class}}}"),
            stream,
            consumer: consumer.to_owned(),
            visibility: VISIBILITY,
            connection,
            take_due: Script::new(include_str!("../lua/take_due.lua")),
            nack: Script::new(include_str!("../lua/nack.lua")),
        })
    }

    pub async fn push(&mut self, number: usize) -> RedisResult<()> {
        let mut add = redis::cmd("XADD");
        add.arg(&[&self.stream, "*", "n", &number.to_string()]);
        add.query_async(&mut self.connection).await
    }

    /// The next message if there is one within `patience`, which blocks this connection.
    pub async fn take(&mut self, patience: Duration) -> RedisResult<Option<Message>> {
        let again: Vec<String> = self
            .take_due
            .key(&self.stream)
            .key(&self.redeliveries)
            .arg(GROUP)
            .arg(&self.consumer)
            .arg(self.visibility.as_millis() as u64)
            .invoke_async(&mut self.connection)
            .await?;
        if let [id, number] = &again[..] {
            return message(id, number).map(Some);
        }
        let mut read = redis::cmd("XREADGROUP");
        read.arg(&["GROUP", GROUP, &self.consumer, "COUNT", "1"]);
        if !patience.is_zero() {
            read.arg("BLOCK").arg(patience.as_millis().max(1) as u64);
        }
        read.arg(&["STREAMS", &self.stream, ">"]);
        type Entries = Vec<(String, Vec<String>)>;
        let new: Option<Vec<(String, Entries)>> = read.query_async(&mut self.connection).await?;
        let entry = new.into_iter().flatten().flat_map(|(_, entries)| entries).next();
        entry.map(|(id, fields)| message(&id, fields.get(1).map_or("", String::as_str))).transpose()
    }

    /// Done: it is gone from the queue.
    pub async fn ack(&mut self, message: &Message) -> RedisResult<()> {
        let mut both = redis::pipe();
        both.atomic().cmd("XACK").arg(&[&self.stream, GROUP, &message.id]).ignore();
        both.cmd("XDEL").arg(&[&self.stream, &message.id]).ignore();
        both.query_async(&mut self.connection).await
    }

    /// Not done: it comes again after `delay`.
    pub async fn nack(&mut self, message: &Message, delay: Duration) -> RedisResult<()> {
        self.nack
            .key(&self.redeliveries)
            .arg(&message.id)
            .arg(delay.as_millis() as u64)
            .invoke_async(&mut self.connection)
            .await
    }

    /// Messages that are not acknowledged, taken or not.
    pub async fn len(&mut self) -> RedisResult<usize> {
        redis::cmd("XLEN").arg(&self.stream).query_async(&mut self.connection).await
    }
}

fn message(id: &str, number: &str) -> RedisResult<Message> {
    match number.parse() {
        Ok(number) => Ok(Message { id: id.to_owned(), number }),
        Err(_) => Err((
            redis::ErrorKind::Client,
            "a message of ours has a number",
            format!("{id} has {number:?}"),
        )
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RedisServer;

    const NOT_AT_ALL: Duration = Duration::ZERO;
    const A_MOMENT: Duration = Duration::from_millis(60);

    async fn two_consumers(redis: &RedisServer) -> [Queue; 2] {
        let open = |consumer| Queue::open(redis.url(), "otp", consumer);
        [open("one").await.unwrap(), open("other").await.unwrap()]
    }

    #[tokio::test]
    async fn a_message_is_taken_once_and_gone_when_acknowledged() {
        let redis = RedisServer::start().await;
        let [mut one, mut other] = two_consumers(&redis).await;
        one.push(7).await.unwrap();
        let taken = one.take(NOT_AT_ALL).await.unwrap().unwrap();
        assert_eq!(taken.number, 7);
        assert!(other.take(NOT_AT_ALL).await.unwrap().is_none());
        assert_eq!(other.len().await.unwrap(), 1);
        one.ack(&taken).await.unwrap();
        assert_eq!(other.len().await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_message_given_back_comes_again_when_due_and_not_before() {
        let redis = RedisServer::start().await;
        let [mut one, mut other] = two_consumers(&redis).await;
        one.push(7).await.unwrap();
        let taken = one.take(NOT_AT_ALL).await.unwrap().unwrap();
        one.nack(&taken, A_MOMENT).await.unwrap();
        assert!(other.take(NOT_AT_ALL).await.unwrap().is_none());
        // Nothing new comes: this blocks for longer than the message has to wait.
        assert!(other.take(A_MOMENT * 2).await.unwrap().is_none());
        assert_eq!(other.take(NOT_AT_ALL).await.unwrap().unwrap().number, 7);
        assert!(one.take(NOT_AT_ALL).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_a_dead_sender_held_comes_again_and_what_waits_does_not() {
        let redis = RedisServer::start().await;
        let [mut dead, mut other] = two_consumers(&redis).await;
        other.visibility = A_MOMENT;
        for number in [1, 2] {
            dead.push(number).await.unwrap();
        }
        let waits = dead.take(NOT_AT_ALL).await.unwrap().unwrap();
        dead.nack(&waits, VISIBILITY).await.unwrap();
        dead.take(NOT_AT_ALL).await.unwrap().unwrap();
        assert!(other.take(A_MOMENT * 2).await.unwrap().is_none());
        let found = [other.take(NOT_AT_ALL).await.unwrap(), other.take(NOT_AT_ALL).await.unwrap()];
        let numbers: Vec<usize> = found.into_iter().flatten().map(|taken| taken.number).collect();
        assert_eq!(numbers, [2]);
    }
}
