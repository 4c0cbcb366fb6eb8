//! Bytes of a file: counted, expanded where they are compressed, never more in memory than a buffer.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Options;
use super::error::{Place, ReadError};
use super::gzip::{self, Gunzip};

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

/// A file to read from.
#[derive(Clone, Debug)]
pub struct Source {
    /// What the user calls it. Errors say this, and the format is guessed from it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

impl Source {
    /// A file that the user names by its path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), path }
    }
}

/// How much of anything a file may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What one compressed file may expand to.
    pub max_expanded_bytes: u64,
    /// How many times its own size a compressed file may expand to, once past [`Self::free_expanded_bytes`].
    pub max_expansion: u64,
    pub free_expanded_bytes: u64,
    /// Of a line of text, or of all lines of one row of a table.
    pub max_line_bytes: usize,
    /// Of a table.
    pub max_columns: usize,
    /// Of the description at the beginning of a file, or of the list of members of an archive.
    pub max_header_bytes: usize,
    /// Of a file of sparse samples: something is counted for each.
    pub max_sparse_columns: u32,
    /// Arrays in one file.
    pub max_arrays: usize,
    /// Of the features of one sample, as they are kept.
    pub max_sample_bytes: u64,
    /// Of the names of all classes together.
    pub max_class_name_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_expanded_bytes: 256 << 30,
            max_expansion: 1000,
            free_expanded_bytes: 64 << 20,
            max_line_bytes: 4 << 20,
            max_columns: 1 << 18,
            max_header_bytes: 512 << 10,
            max_sparse_columns: 1 << 24,
            max_arrays: 1024,
            max_sample_bytes: 64 << 20,
            max_class_name_bytes: 1 << 20,
        }
    }
}

/// Asked before each read of a file, and told how many bytes are about to be kept on disk for what a file expands to. An
/// error ends the reading, and is what the reader says then. The default lets everything go on.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<dyn Fn(u64) -> io::Result<()> + Send + Sync>>);

impl Watch {
    pub fn new(ask: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Whether whoever reads may go on, or why not.
    pub fn may_go_on(&self) -> io::Result<()> {
        self.may_spool(0)
    }

    fn may_spool(&self, bytes: u64) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |ask| ask(bytes))
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Watch").finish_non_exhaustive()
    }
}

/// A file that is open. It can be read more than once, also when its name is given to another file meanwhile.
#[derive(Clone)]
pub(super) struct Opened {
    pub name: String,
    pub limits: Limits,
    watch: Watch,
    file: Arc<File>,
    length: u64,
    gzip: bool,
}

impl Opened {
    pub fn new(source: &Source, options: &Options) -> Result<Self, ReadError> {
        let failed = |cause| ReadError::io(&source.name, cause);
        // Opening a pipe would wait for its other end.
        let regular = std::fs::metadata(&source.path).map_err(failed)?.is_file();
        if !regular {
            return Err(ReadError::content(&source.name, Place::Whole, "not a regular file"));
        }
        let file = File::open(&source.path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let (limits, watch) = (options.limits.clone(), options.watch.clone());
        let mut opened = Self { name: source.name.clone(), limits, watch, file: Arc::new(file), length, gzip: false };
        opened.gzip = gzip::is_gzip(opened.input().peek(gzip::MAGIC)?);
        if !opened.gzip && source.name.to_ascii_lowercase().ends_with(".gz") {
            return Err(opened.wrong("its name says gzip, its first bytes do not"));
        }
        Ok(opened)
    }

    /// All of it, expanded, from the beginning.
    pub fn input(&self) -> Input {
        let piece = self.piece(0, self.length);
        if self.gzip {
            Input::new(self.name.clone(), Box::new(Gunzip::new(piece, &self.limits)), None, true)
        } else {
            Input::new(self.name.clone(), Box::new(piece), Some(self.length), false)
        }
    }

    /// Some bytes of a file that is not compressed.
    pub fn piece(&self, position: u64, length: u64) -> Piece {
        let position = position.min(self.length);
        let end = position.saturating_add(length).min(self.length);
        Piece { file: self.file.clone(), watch: self.watch.clone(), position, end }
    }

    /// Bytes on disk.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The same, expanded: for formats that are read here and there.
    pub fn expanded(self, folder: Option<&Path>) -> Result<Self, ReadError> {
        if !self.gzip {
            return Ok(self);
        }
        let failed = |cause| ReadError::io(&self.name, cause);
        // Has no name, so that it goes when it is closed, even if we are killed.
        let mut spool = match folder {
            Some(folder) => tempfile::tempfile_in(folder),
            None => tempfile::tempfile(),
        }
        .map_err(failed)?;
        let mut input = self.input();
        loop {
            let bytes = input.fill()?;
            if bytes.is_empty() {
                break;
            }
            self.watch.may_spool(bytes.len() as u64).map_err(failed)?;
            spool.write_all(bytes).map_err(failed)?;
            let count = bytes.len();
            input.consume(count);
        }
        Ok(Self { length: input.offset(), file: Arc::new(spool), gzip: false, ..self })
    }

    pub fn wrong(&self, problem: impl Into<String>) -> ReadError {
        ReadError::content(&self.name, Place::Whole, problem)
    }
}

/// A range of a file. Several can be read at a time, each from where it is.
pub(super) struct Piece {
    file: Arc<File>,
    watch: Watch,
    position: u64,
    end: u64,
}

impl Piece {
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl Read for Piece {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.watch.may_go_on()?;
        let most = into.len().min(usize::try_from(self.end - self.position).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut into[..most], self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Bytes that arrive one after the other, with their count and with errors that say where.
pub(super) struct Input {
    pub name: String,
    reader: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Of the byte at `start`.
    offset: u64,
    length: Option<u64>,
    expanded: bool,
}

impl Input {
    /// `length` where it is known before all is read.
    pub fn new(name: String, reader: Box<dyn Read + Send>, length: Option<u64>, expanded: bool) -> Self {
        Self { name, reader, buffer: vec![0; BUFFER].into(), start: 0, end: 0, offset: 0, length, expanded }
    }

    /// Bytes that have been taken.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that are still to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        self.length.map(|length| length.saturating_sub(self.offset))
    }

    pub fn place(&self, offset: u64) -> Place {
        if self.expanded { Place::Expanded(offset) } else { Place::Byte(offset) }
    }

    /// An error at the next byte.
    pub fn wrong(&self, problem: impl Into<String>) -> ReadError {
        self.wrong_at(self.offset, problem)
    }

    pub fn wrong_at(&self, offset: u64, problem: impl Into<String>) -> ReadError {
        ReadError::content(&self.name, self.place(offset), problem)
    }

    /// The bytes that have arrived and have not been taken; none at the end.
    pub fn fill(&mut self) -> Result<&[u8], ReadError> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.more()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// As [`Self::fill`], but `count` bytes or more, fewer only at the end. Not for more than a buffer.
    pub fn peek(&mut self, count: usize) -> Result<&[u8], ReadError> {
        if self.start + count > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < count && self.more()? > 0 {}
        Ok(&self.buffer[self.start..self.end])
    }

    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Exactly these bytes, which are `what`.
    pub fn exact(&mut self, into: &mut [u8], what: &str) -> Result<(), ReadError> {
        let mut have = 0;
        while have < into.len() {
            let bytes = self.fill()?;
            if bytes.is_empty() {
                return Err(self.ends_within(what));
            }
            let count = bytes.len().min(into.len() - have);
            into[have..have + count].copy_from_slice(&bytes[..count]);
            self.consume(count);
            have += count;
        }
        Ok(())
    }

    /// Exactly so many bytes, which are `what`, after those in `into`: memory grows as they arrive.
    pub fn append(&mut self, count: usize, into: &mut Vec<u8>, what: &str) -> Result<(), ReadError> {
        let ready = count.min(self.end - self.start);
        into.extend_from_slice(&self.buffer[self.start..self.start + ready]);
        self.consume(ready);
        if ready < count {
            let direct = self.reader.by_ref().take((count - ready) as u64).read_to_end(into);
            let taken = direct.map_err(|cause| self.failed(cause))?;
            self.offset += taken as u64;
            if taken < count - ready {
                return Err(self.ends_within(what));
            }
        }
        Ok(())
    }

    /// That nothing is left. Checksums at the end of compressed files are looked at on the way.
    pub fn finish(&mut self) -> Result<(), ReadError> {
        if self.fill()?.is_empty() { Ok(()) } else { Err(self.wrong("bytes are left after the last sample")) }
    }

    fn ends_within(&self, what: &str) -> ReadError {
        self.wrong(format!("the file ends within {what}: it is truncated, or its header is wrong"))
    }

    fn more(&mut self) -> Result<usize, ReadError> {
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.failed(cause)),
            }
        }
    }

    /// Readers that expand say by these kinds that the bytes are wrong; all else is the machine's fault.
    fn failed(&self, cause: io::Error) -> ReadError {
        match cause.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput if self.expanded => {
                self.wrong_at(self.offset + (self.end - self.start) as u64, cause.to_string())
            }
            io::ErrorKind::UnexpectedEof if self.expanded => self.wrong_at(
                self.offset + (self.end - self.start) as u64,
                "the compressed file ends too early: it is truncated",
            ),
            _ => ReadError::io(&self.name, cause),
        }
    }
}
