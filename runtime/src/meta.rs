//! The metadata store: small records, kept in one transactional file (redb).
//!
//! A [`Record`] belongs to a table and knows its key; its value is JSON, so that a field can be added without a
//! migration. Changes are collected in a [`Batch`] and become visible together, on disk, or not at all. Nothing reads
//! from here while serving: each part loads its records at start and writes before it changes what it holds in memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::thread::JoinHandle;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::locks::{Lock, SharedLock};

/// What of the file is kept in memory. Little is read twice: each part has its records in memory, and writes them one by
/// one. Left to itself, redb would take up to 1 GiB, which is nobody's.
pub const CACHE_BYTES: usize = 32 << 20;

/// Commits that are written in one transaction at most.
const MOST_TOGETHER: usize = 64;

/// A kind of record.
pub trait Record: Serialize + DeserializeOwned {
    const TABLE: &'static str;

    fn key(&self) -> String;
}

/// The metadata could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    #[error("metadata store: {0}")]
    Store(#[from] redb::Error),
    #[error("metadata store: record `{key}` of table `{table}` cannot be read: {reason}")]
    Corrupt { table: String, key: String, reason: serde_json::Error },
    #[error("metadata store: a record cannot be written: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("metadata store: the writer was interrupted")]
    Interrupted,
}

/// One record as it is stored, and as a backup carries it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub table: String,
    pub key: String,
    /// `None` deletes.
    pub value: Option<serde_json::Value>,
}

/// Changes that belong together.
#[derive(Default)]
pub struct Batch {
    entries: Vec<Entry>,
    /// Whether it is enough that it is on disk when a later batch is that is not so.
    can_be_lost: bool,
}

impl Batch {
    pub fn put<R: Record>(mut self, record: &R) -> Result<Self, MetaError> {
        let value = Some(serde_json::to_value(record)?);
        self.entries.push(Entry { table: R::TABLE.to_owned(), key: record.key(), value });
        Ok(self)
    }

    pub fn delete<R: Record>(mut self, key: String) -> Self {
        self.entries.push(Entry { table: R::TABLE.to_owned(), key, value: None });
        self
    }

    /// These changes and then those.
    pub fn and(mut self, others: Self) -> Self {
        // What cannot be lost takes the rest with it; nothing needs nothing.
        self.can_be_lost &= others.can_be_lost || others.is_empty();
        self.entries.extend(others.entries);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// For what is done again if it is lost: nobody waits for the disk. A crash takes it with all that was written after it,
    /// and nothing that was written before, so records still fit together.
    pub fn that_can_be_lost(mut self) -> Self {
        self.can_be_lost = true;
        self
    }
}

impl From<Vec<Entry>> for Batch {
    fn from(entries: Vec<Entry>) -> Self {
        Self { entries, can_be_lost: false }
    }
}

fn definition(table: &str) -> TableDefinition<'_, &'static str, &'static [u8]> {
    TableDefinition::new(table)
}

pub struct Metadata {
    store: Arc<Store>,
    writer: Mutex<Option<Writer>>,
}

/// The thread that writes: commits must not wait behind whatever else blocks a node's threads.
struct Writer {
    commits: mpsc::Sender<Commit>,
    thread: JoinHandle<()>,
}

/// Something to be written, and who waits for it.
struct Commit {
    batch: Batch,
    done: oneshot::Sender<Result<(), MetaError>>,
}

/// The file.
struct Store {
    path: PathBuf,
    /// `None` after it could not be opened again; the next one to need it tries.
    database: RwLock<Option<Database>>,
}

impl Drop for Metadata {
    fn drop(&mut self) {
        // The file is closed when this returns, so that it can be opened again.
        if let Some(Writer { commits, thread }) = self.writer.locked().take() {
            drop(commits);
            thread.join().ok();
        }
    }
}

impl Metadata {
    pub fn open(path: &Path) -> Result<Arc<Self>, MetaError> {
        let database = RwLock::new(Some(open(path)?));
        let store = Arc::new(Store { path: path.to_owned(), database });
        Ok(Arc::new(Self { store, writer: Mutex::default() }))
    }

    /// Every record of one kind, in the order of their keys.
    pub fn all<R: Record>(&self) -> Result<Vec<R>, MetaError> {
        let decode = |entry: Entry| {
            let Entry { table, key, value } = entry;
            serde_json::from_value(value.unwrap_or_default()).map_err(|reason| MetaError::Corrupt {
                table,
                key,
                reason,
            })
        };
        self.store.read(|name| name == R::TABLE)?.into_iter().map(decode).collect()
    }

    /// Every record of every kind, as of one moment.
    pub fn snapshot(&self) -> Result<Vec<Entry>, MetaError> {
        self.store.read(|_| true)
    }

    /// Writes a batch and waits until it is on disk. One that is not waited for is written all the same.
    pub async fn commit(&self, batch: Batch) -> Result<(), MetaError> {
        self.commit_with(batch, || Ok(Batch::default())).await
    }

    /// The same, with records of what changes all the time. They are made when the batch is handed to the thread that
    /// writes, and nobody else hands one over meanwhile: so of two such records, the newer one is written last.
    pub async fn commit_with(
        &self,
        batch: Batch,
        newest: impl FnOnce() -> Result<Batch, MetaError> + Send,
    ) -> Result<(), MetaError> {
        let (done, written) = oneshot::channel();
        self.send(|| Ok(Commit { batch: batch.and(newest()?), done }))?;
        written.await.unwrap_or(Err(MetaError::Interrupted))
    }

    /// Hands something to the thread that writes, which is started by the first commit, and again if it has died.
    fn send(&self, commit: impl FnOnce() -> Result<Commit, MetaError>) -> Result<(), MetaError> {
        let mut writer = self.writer.locked();
        let commit = commit()?;
        let refused = match &*writer {
            Some(running) => match running.commits.send(commit) {
                Ok(()) => return Ok(()),
                Err(mpsc::SendError(commit)) => commit,
            },
            None => commit,
        };
        let (commits, received) = mpsc::channel::<Commit>();
        let store = self.store.clone();
        let write = move || {
            while let Ok(first) = received.recv() {
                // Whoever waits by now shares a transaction: what takes long is that the disk has it.
                let mut together = vec![first];
                together.extend(received.try_iter().take(MOST_TOGETHER - 1));
                store.commit_all(together);
            }
        };
        let thread = std::thread::Builder::new().name("metadata".to_owned()).spawn(write);
        let thread = thread.map_err(|error| MetaError::Store(redb::Error::Io(error)))?;
        commits.send(refused).map_err(|_| MetaError::Interrupted)?;
        *writer = Some(Writer { commits, thread });
        Ok(())
    }

    /// [`Metadata::commit`] for callers that are not asynchronous.
    pub fn commit_blocking(&self, batch: Batch) -> Result<(), MetaError> {
        self.store.commit(&batch)
    }
}

impl Store {
    /// Runs `work` on the database. A database that has met an error of the disk, a full one say, refuses everything from
    /// then on; it is opened again, so that the node goes on when the disk does.
    fn on_database<T>(&self, work: impl Fn(&Database) -> Result<T, MetaError>) -> Result<T, MetaError> {
        if let Some(database) = &*self.database.reading() {
            match work(database) {
                Err(MetaError::Store(redb::Error::PreviousIo)) => {}
                done => return done,
            }
        }
        let mut database = self.database.writing();
        // Closed before it is opened: it holds its file's lock.
        *database = None;
        work(database.insert(open(&self.path)?))
    }

    fn read(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Entry>, MetaError> {
        self.on_database(|database| read(database, &wanted))
    }

    fn commit(&self, batch: &Batch) -> Result<(), MetaError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.on_database(|database| write(database, &[batch]))
    }

    /// Writes several batches in their order, in one transaction if that can be: of those that could not be written together,
    /// each is told of itself.
    fn commit_all(&self, commits: Vec<Commit>) {
        let batches: Vec<&Batch> = commits.iter().map(|commit| &commit.batch).collect();
        let is_written = commits.len() > 1 && self.on_database(|database| write(database, &batches)).is_ok();
        for Commit { batch, done } in commits {
            done.send(if is_written { Ok(()) } else { self.commit(&batch) }).ok();
        }
    }
}

fn open(path: &Path) -> Result<Database, MetaError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    Ok(builder.create(path).map_err(redb::Error::from)?)
}

fn read(database: &Database, wanted: impl Fn(&str) -> bool) -> Result<Vec<Entry>, MetaError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let mut entries = Vec::new();
    for handle in transaction.list_tables().map_err(redb::Error::from)? {
        if !wanted(handle.name()) {
            continue;
        }
        let table = transaction.open_table(definition(handle.name())).map_err(redb::Error::from)?;
        for row in table.iter().map_err(redb::Error::from)? {
            let (key, value) = row.map_err(redb::Error::from)?;
            let (table, key) = (handle.name().to_owned(), key.value().to_owned());
            match serde_json::from_slice(value.value()) {
                Ok(value) => entries.push(Entry { table, key, value: Some(value) }),
                Err(reason) => return Err(MetaError::Corrupt { table, key, reason }),
            }
        }
    }
    Ok(entries)
}

fn write(database: &Database, batches: &[&Batch]) -> Result<(), MetaError> {
    let mut transaction = database.begin_write().map_err(redb::Error::from)?;
    if batches.iter().all(|batch| batch.can_be_lost) {
        transaction.set_durability(redb::Durability::None).map_err(redb::Error::from)?;
    }
    for entry in batches.iter().flat_map(|batch| &batch.entries) {
        let mut table = transaction.open_table(definition(&entry.table)).map_err(redb::Error::from)?;
        match &entry.value {
            Some(value) => {
                let bytes = serde_json::to_vec(value)?;
                table.insert(entry.key.as_str(), bytes.as_slice()).map_err(redb::Error::from)?;
            }
            None => {
                table.remove(entry.key.as_str()).map_err(redb::Error::from)?;
            }
        }
    }
    transaction.commit().map_err(redb::Error::from)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Colour {
        name: String,
        hue: u32,
    }

    impl Record for Colour {
        const TABLE: &'static str = "colours";

        fn key(&self) -> String {
            self.name.clone()
        }
    }

    fn colour(name: &str, hue: u32) -> Colour {
        Colour { name: name.to_owned(), hue }
    }

    #[test]
    fn records_survive_a_reopen_and_deletes_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meta.redb");
        let batch = Batch::default().put(&colour("red", 0)).unwrap().put(&colour("blue", 240)).unwrap();
        let metadata = Metadata::open(&path).unwrap();
        metadata.commit_blocking(batch).unwrap();
        metadata.commit_blocking(Batch::default().delete::<Colour>("red".to_owned())).unwrap();
        drop(metadata);
        assert_eq!(Metadata::open(&path).unwrap().all::<Colour>().unwrap(), [colour("blue", 240)]);
    }

    #[test]
    fn commits_that_wait_together_are_all_written_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meta.redb");
        let metadata = Metadata::open(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let commits = (0..200).map(|hue| metadata.commit(Batch::default().put(&colour("red", hue)).unwrap()));
        let written = runtime.block_on(futures_util::future::join_all(commits));
        assert!(written.iter().all(Result::is_ok));
        drop(metadata);
        assert_eq!(Metadata::open(&path).unwrap().all::<Colour>().unwrap(), [colour("red", 199)]);
    }

    #[test]
    fn what_can_be_lost_is_on_disk_with_what_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meta.redb");
        let metadata = Metadata::open(&path).unwrap();
        metadata.commit_blocking(Batch::default().put(&colour("red", 0)).unwrap().that_can_be_lost()).unwrap();
        assert_eq!(metadata.all::<Colour>().unwrap(), [colour("red", 0)], "it is there at once");
        metadata.commit_blocking(Batch::default().put(&colour("blue", 240)).unwrap()).unwrap();
        // As a crash leaves it: what is in memory is gone.
        let copy = folder.path().join("copy.redb");
        std::fs::copy(&path, &copy).unwrap();
        let found = Metadata::open(&copy).unwrap().all::<Colour>().unwrap();
        assert_eq!(found, [colour("blue", 240), colour("red", 0)]);
    }

    #[test]
    fn a_commit_does_not_wait_for_the_threads_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meta.redb");
        let metadata = Metadata::open(&path).unwrap();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        // Somebody has taken the only thread that blocking work could run on.
        let holder = runtime.spawn_blocking(move || held.recv().ok());
        let batch = Batch::default().put(&colour("red", 0)).unwrap();
        let in_time = std::time::Duration::from_secs(60);
        let committed = runtime.block_on(async { tokio::time::timeout(in_time, metadata.commit(batch)).await });
        drop(release);
        runtime.block_on(holder).unwrap();
        committed.expect("it waited for the blocking threads").unwrap();
        drop(metadata);
        assert_eq!(Metadata::open(&path).unwrap().all::<Colour>().unwrap(), [colour("red", 0)]);
    }

    #[test]
    fn an_unreadable_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
        let entry = Entry { table: "colours".into(), key: "odd".into(), value: Some(serde_json::json!(7)) };
        metadata.commit_blocking(vec![entry].into()).unwrap();
        let error = metadata.all::<Colour>().unwrap_err().to_string();
        assert!(error.contains("`odd`") && error.contains("`colours`"), "{error}");
    }
}
