//! What must be durable, appended to a file: a thread writes what has come together and syncs once for all of it.
//!
//! What is synced together begins with the journal's mark. So whatever is before a mark was on disk when the mark was
//! written, and has been acknowledged: if it cannot be read, that is damage and not the end of what a crash left. The first
//! mark is on disk before anything of a tenant is written to the file, so a later one is never a tenant's forgery.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use tokio::sync::{Notify, oneshot};

use super::disk::DiskError;
use super::frame::{self, Record};

/// Bytes of a journal from which on a snapshot is due.
const LONG: u64 = 256 << 20;

/// Requests that are written together.
const TOGETHER: usize = 1_024;

/// Random bytes that a mark is made from.
const MARK_BYTES: usize = 16;

enum Request {
    Append(Vec<Record>, Answer<()>),
    /// Goes on in a new file, and tells its number.
    Next(Answer<u64>),
}

type Answer<T> = oneshot::Sender<Result<T, DiskError>>;

pub struct Journal {
    requests: mpsc::Sender<Request>,
    long: Arc<Notify>,
}

/// Ready when what was appended is on disk.
pub struct Pending(oneshot::Receiver<Result<(), DiskError>>);

impl Future for Pending {
    type Output = Result<(), DiskError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), DiskError>> {
        std::pin::Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(gone())))
    }
}

fn gone() -> DiskError {
    DiskError::Ended("the journal's thread is gone".to_owned())
}

impl Journal {
    /// Begins a new file with these records. If they cannot be written, because the disk is full say, neither can what
    /// follows be, until there is a next file.
    pub fn start(folder: &Path, number: u64, first: &[Record]) -> Result<Self, DiskError> {
        let (requests, come) = mpsc::channel();
        let long = Arc::new(Notify::new());
        let mut file = JournalFile::create(folder, number)?;
        let written = file.write(first).and_then(|()| file.sync());
        let thread = Thread { folder: folder.to_owned(), file, long: long.clone() };
        let failed = written.err().map(|error| thread.failure(error));
        if let Some(error) = &failed {
            tracing::error!(%error, "nothing can be made durable in the parameter store before its next snapshot");
        }
        let run = move || thread.run(&come, failed);
        let spawned = std::thread::Builder::new().name("weft-params".to_owned()).spawn(run);
        spawned.map_err(|error| DiskError::io("start a thread for", folder, error))?;
        Ok(Self { requests, long })
    }

    /// In the order of the calls.
    pub fn append(&self, records: Vec<Record>) -> Pending {
        let (answer, pending) = oneshot::channel();
        // If the thread is gone, so is the other end of the answer, and the future says so.
        self.requests.send(Request::Append(records, answer)).ok();
        Pending(pending)
    }

    pub async fn next(&self) -> Result<u64, DiskError> {
        let (answer, pending) = oneshot::channel();
        self.requests.send(Request::Next(answer)).ok();
        pending.await.unwrap_or_else(|_| Err(gone()))
    }

    pub async fn is_long(&self) {
        self.long.notified().await;
    }
}

pub fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("journal-{number:020}"))
}

/// Whether a whole mark, of whatever journal, is among these bytes.
pub fn holds_mark(bytes: &[u8]) -> io::Result<bool> {
    let mut example = Vec::new();
    Record::Begin { mark: crate::digest::hex(&[0; MARK_BYTES]) }.write(&mut example)?;
    // Every mark is as long as any other, and so begins with the same lengths.
    let lengths = &example[..frame::LENGTHS];
    let is_mark = |mut bytes: &[u8]| matches!(Record::read(&mut bytes), Ok(Some(Record::Begin { .. })));
    Ok(bytes.windows(example.len()).any(|bytes| bytes.starts_with(lengths) && is_mark(bytes)))
}

struct JournalFile {
    number: u64,
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    long_told: bool,
    /// Begins what is synced together.
    mark: Record,
    /// Whether something was written since the last sync.
    begun: bool,
}

impl JournalFile {
    fn create(folder: &Path, number: u64) -> Result<Self, DiskError> {
        let path = path_of(folder, number);
        let mut mark = [0; MARK_BYTES];
        getrandom::fill(&mut mark).map_err(|error| DiskError::Ended(format!("no randomness: {error}")))?;
        let file = File::create_new(&path).map_err(|error| DiskError::io("create", &path, error))?;
        super::disk::sync_folder(folder).inspect_err(|_| {
            // So that it can be created when it is tried again.
            std::fs::remove_file(&path).ok();
        })?;
        Ok(Self {
            number,
            path,
            file: BufWriter::with_capacity(1 << 20, file),
            bytes: 0,
            long_told: false,
            mark: Record::Begin { mark: crate::digest::hex(&mark) },
            begun: false,
        })
    }

    /// Has the mark on disk before anything else.
    fn begin(&mut self) -> io::Result<()> {
        self.write(&[])?;
        self.sync()
    }

    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.bytes += self.mark.write(&mut self.file)?;
        }
        for record in records {
            self.bytes += record.write(&mut self.file)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.begun = false;
        self.file.flush()?;
        self.file.get_ref().sync_data()
    }
}

struct Thread {
    folder: PathBuf,
    file: JournalFile,
    long: Arc<Notify>,
}

impl Thread {
    /// Once a file could not be written, what is behind the gap would not be found again: so nothing more goes there.
    fn run(mut self, come: &mpsc::Receiver<Request>, mut failed: Option<DiskError>) {
        while let Ok(first) = come.recv() {
            let mut waiting = Vec::new();
            for request in std::iter::once(first).chain(come.try_iter().take(TOGETHER)) {
                match request {
                    Request::Append(records, answer) => {
                        if failed.is_none() {
                            failed = self.file.write(&records).err().map(|error| self.failure(error));
                        }
                        waiting.push(answer);
                    }
                    Request::Next(answer) => {
                        self.flush(&mut failed, &mut waiting);
                        let next = JournalFile::create(&self.folder, self.file.number + 1).map(|file| self.file = file);
                        if next.is_ok() {
                            failed = self.file.begin().err().map(|error| self.failure(error));
                        }
                        answer.send(next.map(|()| self.file.number)).ok();
                    }
                }
            }
            self.flush(&mut failed, &mut waiting);
            let is_long = self.file.bytes >= LONG && !std::mem::replace(&mut self.file.long_told, true);
            if is_long || failed.is_some() {
                self.long.notify_one();
            }
        }
    }

    fn flush(&mut self, failed: &mut Option<DiskError>, waiting: &mut Vec<Answer<()>>) {
        if waiting.is_empty() {
            return;
        }
        if failed.is_none() {
            *failed = self.file.sync().err().map(|error| self.failure(error));
        }
        for answer in waiting.drain(..) {
            answer.send(failed.clone().map_or(Ok(()), Err)).ok();
        }
    }

    fn failure(&self, error: io::Error) -> DiskError {
        DiskError::io("write", &self.file.path, error)
    }
}
