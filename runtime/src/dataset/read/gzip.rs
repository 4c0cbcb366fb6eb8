//! Gzip, with a limit on what a file may expand to.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::source::{Limits, Piece};

/// Bytes that [`is_gzip`] looks at.
pub(super) const MAGIC: usize = 9;

/// Whether these are the first bytes of a gzip file.
pub(super) fn is_gzip(first: &[u8]) -> bool {
    // A safetensors file may begin alike, with the length of its header; but its ninth byte is a brace.
    first.starts_with(&[0x1f, 0x8b, 8]) && first.get(8) != Some(&b'{')
}

/// Expands; all members if there are several, as `gzip -d` does.
pub(super) struct Gunzip {
    decoder: MultiGzDecoder<BufReader<Piece>>,
    guard: Guard,
}

impl Gunzip {
    pub fn new(piece: Piece, limits: &Limits) -> Self {
        Self { decoder: MultiGzDecoder::new(BufReader::with_capacity(32 << 10, piece)), guard: Guard::new(limits) }
    }
}

impl Read for Gunzip {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(into)?;
        self.guard.count(count as u64, self.decoder.get_ref().get_ref().position())?;
        Ok(count)
    }
}

/// Watches what a compressed file expands to.
pub(super) struct Guard {
    expanded: u64,
    most: u64,
    expansion: u64,
    free: u64,
}

impl Guard {
    pub fn new(limits: &Limits) -> Self {
        Self {
            expanded: 0,
            most: limits.max_expanded_bytes,
            expansion: limits.max_expansion,
            free: limits.free_expanded_bytes,
        }
    }

    /// So many more bytes came out, after so many in all went in.
    pub fn count(&mut self, more: u64, compressed: u64) -> io::Result<()> {
        self.expanded = self.expanded.saturating_add(more);
        self.check(self.expanded, compressed)
    }

    /// Whether that many bytes may come of so many.
    pub fn check(&self, expanded: u64, compressed: u64) -> io::Result<()> {
        let problem = if expanded > self.most {
            format!("it expands to more than the limit of {} bytes (`max_expanded_bytes`)", self.most)
        } else if expanded > self.free && expanded / self.expansion.max(1) > compressed {
            format!("it expands to more than {} times its size (`max_expansion`): no data does that", self.expansion)
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, problem))
    }
}
