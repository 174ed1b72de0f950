//! Where a link's connection comes from.
//!
//! Promise: what [`Source::connect`] gives has answered, and is no replica (a node of a cluster may
//! be one: it sends us on). Behind Sentinels each attempt asks another of them, so one that is silent
//! costs an attempt, not the store.

use ::redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, Role,
    aio::MultiplexedConnection, sentinel::SentinelClient,
};

pub(super) enum Source {
    One(Client),
    /// A node of a cluster.
    Node(Client),
    /// Never empty; the next to ask stands first.
    Sentinels(Vec<SentinelClient>),
}

impl Source {
    pub async fn connect(&mut self) -> RedisResult<MultiplexedConnection> {
        // Callers bring their own deadlines.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        match self {
            Self::One(client) => {
                let mut connection =
                    client.get_multiplexed_async_connection_with_config(&config).await?;
                ping(&mut connection).await?;
                refuse_replica(&mut connection).await?;
                Ok(connection)
            }
            Self::Node(client) => {
                let mut connection =
                    client.get_multiplexed_async_connection_with_config(&config).await?;
                ping(&mut connection).await?;
                Ok(connection)
            }
            Self::Sentinels(clients) => {
                clients.rotate_left(1);
                let Some(last) = clients.last_mut() else {
                    return Err((ErrorKind::EmptySentinelList, "no Sentinel").into());
                };
                let mut connection = last.get_async_connection_with_config(&config).await?;
                ping(&mut connection).await?;
                Ok(connection)
            }
        }
    }

    /// For the log.
    pub fn name(&self) -> String {
        match self {
            Self::One(client) | Self::Node(client) => {
                client.get_connection_info().addr().to_string()
            }
            Self::Sentinels(_) => "the primary that the Sentinels name".to_owned(),
        }
    }
}

/// Where ROLE is not allowed, a replica is found out by its first refusal.
async fn refuse_replica(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    match ::redis::cmd("ROLE").query_async(connection).await {
        Ok(Role::Replica { primary_ip, primary_port, .. }) => Err(RedisError::from((
            ErrorKind::Client,
            "it is a replica",
            format!("of {primary_ip}:{primary_port}"),
        ))),
        Err(error) if error.is_io_error() => Err(error),
        _ => Ok(()),
    }
}

pub(super) async fn ping(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    ::redis::cmd("PING").query_async(connection).await
}
