//! A reply that never begins.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body::{Body, Frame};

/// The server asks a body for its first piece before it sends the head, and closes the
/// connection when that fails: the caller sees an end without a reply.
#[derive(Debug)]
pub struct BrokenBody;

impl Body for BrokenBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Err(std::io::Error::other("the reply is lost"))))
    }
}
