//! A client that has said all it has to say, and still listens.
//!
//! The end of what a client sends means one of two things, and TCP does not tell which: that it is gone, or that it has only
//! closed its half, as `nc -N` and some probes do. So the end is kept back for a moment while a request is being answered.
//! Whoever listens gets what is answered in that time, and all of an answer that has begun; whoever is gone is noticed a
//! moment later.
//!
//! This stream also tells its connection when all that there was to send has been sent. Only here is that known: HTTP above
//! lets go of an answer as soon as it has the last piece of it, which may be megabytes that a slow reader takes minutes for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::api::Connection;

/// How long an answer may take to begin, or to go on, after the client has closed its half.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A stream whose end is kept back while a request is being answered.
pub struct HalfClose<T> {
    stream: T,
    connection: Arc<Connection>,
    /// Runs from the moment when the end was seen, or from the last write after it.
    ended: Option<Pin<Box<Sleep>>>,
    /// Whether a write waits for the client to read. A client that is gone fails the write, and one that does not read is
    /// given up by [`super::write_timeout`]; so nothing else has to run out meanwhile.
    writing: bool,
}

impl<T> HalfClose<T> {
    pub fn new(stream: T, connection: Arc<Connection>) -> Self {
        Self { stream, connection, ended: None, writing: false }
    }

    /// Notes whether a write waits. One that does not has shown that the client listens.
    fn noted<R>(&mut self, context: &mut Context<'_>, written: Poll<R>) -> Poll<R> {
        self.writing = written.is_pending();
        if let (Some(patience), false) = (&mut self.ended, self.writing) {
            patience.as_mut().reset(Instant::now() + PATIENCE);
            // Nobody may read again before it is over, so that whoever reads has to be woken by it.
            patience.as_mut().poll(context).is_ready();
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HalfClose<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, connection, ended, writing } = self.get_mut();
        if ended.is_none() {
            let (before, wants_some) = (buffer.filled().len(), buffer.remaining() > 0);
            ready!(Pin::new(stream).poll_read(context, buffer))?;
            if buffer.filled().len() > before || !wants_some {
                return Poll::Ready(Ok(()));
            }
        }
        let patience = ended.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        match connection.is_busy() {
            // The same task writes, and is woken for that.
            true if *writing => Poll::Pending,
            true => patience.as_mut().poll(context).map(Ok),
            false => Poll::Ready(Ok(())),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HalfClose<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.noted(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // HTTP flushes when it has written all that it has.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.writing = flushed.is_pending();
        if let Poll::Ready(Ok(())) = flushed {
            let was_busy = self.connection.is_busy();
            self.connection.flushed();
            if was_busy && !self.connection.is_busy() && self.ended.is_some() {
                // The end that was kept back can be read now.
                context.waker().wake_by_ref();
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
