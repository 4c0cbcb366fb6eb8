//! WASI for components that import it: clocks, randomness, standard output and error to the function's log.
//!
//! No files, no sockets, no environment, no arguments: those interfaces are linked, because language runtimes import
//! them, but there is nothing behind them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{WasiCtx, async_trait};

use super::JobState;
use crate::locks::Lock;
use crate::logs::{Level, LogSink};

/// How much a guest may write between two checks; it only bounds one call.
const WRITE_PERMIT: usize = 64 << 10;
/// A line longer than this is broken, so that a guest cannot make the host buffer.
const MAX_LINE: usize = 4 << 10;

pub fn context(job: &JobState) -> WasiCtx {
    WasiCtx::builder()
        .stdout(LogStream::new(&job.log, Level::Info))
        .stderr(LogStream::new(&job.log, Level::Warn))
        .max_random_size(job.payload)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

/// The invocation's log, shared by `job.log` and the standard streams.
#[derive(Clone)]
pub struct SharedLog(Arc<Mutex<LogSink>>);

impl SharedLog {
    pub fn new(sink: LogSink) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }

    pub fn lock(&self) -> MutexGuard<'_, LogSink> {
        self.0.locked()
    }
}

/// A standard stream whose lines become log lines.
#[derive(Clone)]
struct LogStream(Arc<Mutex<Lines>>);

struct Lines {
    log: SharedLog,
    level: Level,
    unfinished: Vec<u8>,
}

impl LogStream {
    fn new(log: &SharedLog, level: Level) -> Self {
        Self(Arc::new(Mutex::new(Lines { log: log.clone(), level, unfinished: Vec::new() })))
    }

    fn push(&self, bytes: &[u8]) {
        self.0.locked().push(bytes);
    }
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n').flat_map(|line| line.chunks(MAX_LINE)) {
            self.unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.unfinished.len() >= MAX_LINE {
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        let line = String::from_utf8_lossy(&self.unfinished);
        self.log.lock().write(self.level, line.trim_end_matches(['\n', '\r']));
        self.unfinished.clear();
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.unfinished.is_empty() {
            self.finish();
        }
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_PERMIT)
    }
}

impl AsyncWrite for LogStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
