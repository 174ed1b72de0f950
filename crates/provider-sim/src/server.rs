//! A listening provider, for the program and for tests that run it in-process.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::ListenerExt;
use tokio::net::{TcpListener, ToSocketAddrs};

use crate::http::router;
use crate::provider::Provider;

#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    provider: Arc<Provider>,
}

impl Server {
    /// Port 0 takes a free one; see [`Server::local_addr`].
    pub async fn bind(addr: impl ToSocketAddrs, provider: Arc<Provider>) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(addr).await?, provider })
    }

    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` resolves and the calls in progress are answered.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let listener = self.listener.tap_io(|stream| {
            // A reply must not wait for an acknowledgement. On a connection that has already
            // gone this fails, and so will the next read: nothing to do about it here.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router(self.provider)).with_graceful_shutdown(shutdown).await
    }
}
