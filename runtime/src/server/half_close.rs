//! A client that has said all it has to say, and still listens.
//!
//! The end of what a client sends means one of two things, and TCP does not tell which: that it is gone, or that it has only
//! closed its half, as `nc -N` and some probes do. So the end is kept back for a moment while a request is being answered.
//! Whoever listens gets what is answered in that time; whoever is gone is noticed a moment later.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::api::Connection;

/// How long an answer may take after the client has closed its half.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A stream whose end is kept back while a request is being answered.
pub struct HalfClose<T> {
    stream: T,
    connection: Arc<Connection>,
    /// Runs from the moment when the end was seen.
    ended: Option<Pin<Box<Sleep>>>,
}

impl<T> HalfClose<T> {
    pub fn new(stream: T, connection: Arc<Connection>) -> Self {
        Self { stream, connection, ended: None }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HalfClose<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, connection, ended } = self.get_mut();
        if ended.is_none() {
            let (before, wants_some) = (buffer.filled().len(), buffer.remaining() > 0);
            ready!(Pin::new(stream).poll_read(context, buffer))?;
            if buffer.filled().len() > before || !wants_some {
                return Poll::Ready(Ok(()));
            }
        }
        let patience = ended.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        // Whoever reads looks again when the answer is sent, so nobody has to be woken for that.
        if connection.is_busy() { patience.as_mut().poll(context).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HalfClose<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
