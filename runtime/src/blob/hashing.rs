//! What a blob is called is known when all of it has gone by.

use std::io::{self, Write};

use crate::digest::{Digest, Hasher};

/// Counts and hashes what goes through.
pub(super) struct Hashing<W> {
    to: W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Hashing<W> {
    pub fn new(to: W) -> Self {
        Self { to, hasher: Hasher::default(), size: 0 }
    }

    /// The digest and the number of all bytes.
    pub fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
