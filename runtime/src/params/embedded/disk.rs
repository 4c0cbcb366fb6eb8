//! What the store has on disk: one snapshot, and journals of what had to be durable since.
//!
//! A snapshot is written beside its place, synced, and renamed: there is a whole one at any moment. It names the first
//! journal that it does not hold all of; older ones are deleted after it is in place. A journal ends where a record is
//! not whole: what is behind was never acknowledged.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::frame::Record;
use super::journal::{self, Journal, Pending};

/// Begins every snapshot; the number of the format is in it.
const MAGIC: [u8; 8] = *b"weftpar1";

/// Of a snapshot: magic, the first journal, the number of records, a checksum.
const HEADER: usize = 28;

const SNAPSHOT: &str = "snapshot";

/// What stands in the way of reading or writing it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskError {
    #[error("cannot {what} `{}`: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: String },
    #[error(
        "the snapshot `{}` of the parameter store is damaged after {records} values: put a good copy in its place, or \
         remove it to begin with an empty store",
        path.display()
    )]
    Damaged { path: PathBuf, records: u64 },
    #[error("the store's own work ended: {0}")]
    Ended(String),
}

impl DiskError {
    pub fn io(what: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), error: error.to_string() }
    }
}

/// Where a store in this folder has its snapshot.
pub fn snapshot_path(folder: &Path) -> PathBuf {
    folder.join(SNAPSHOT)
}

pub struct Disk {
    folder: PathBuf,
    journal: Journal,
}

impl Disk {
    /// Reads what is there, and begins a new journal.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Record>), DiskError> {
        fs::create_dir_all(folder).map_err(|error| DiskError::io("create", folder, error))?;
        let (first, mut records) = read_snapshot(&snapshot_path(folder))?;
        let mut numbers = journals(folder)?;
        numbers.sort_unstable();
        for &number in numbers.iter().filter(|&&number| number >= first) {
            read_journal(&journal::path_of(folder, number), &mut records)?;
        }
        let next = numbers.last().map_or(first, |last| last + 1).max(first);
        Ok((Self { folder: folder.to_owned(), journal: Journal::start(folder, next)? }, records))
    }

    pub fn append(&self, records: Vec<Record>) -> Pending {
        self.journal.append(records)
    }

    pub async fn next_journal(&self) -> Result<u64, DiskError> {
        self.journal.next().await
    }

    pub async fn is_long(&self) {
        self.journal.is_long().await;
    }

    /// Replaces the snapshot by these records, which hold all that is in journals before `journal`.
    pub fn write_snapshot(&self, journal: u64, records: &[Record]) -> Result<(), DiskError> {
        let (place, beside) = (snapshot_path(&self.folder), self.folder.join("snapshot.new"));
        let write = || -> io::Result<()> {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&beside)?);
            let header = [MAGIC, journal.to_le_bytes(), (records.len() as u64).to_le_bytes()].concat();
            file.write_all(&header)?;
            file.write_all(&crc32fast::hash(&header).to_le_bytes())?;
            for record in records {
                record.write(&mut file)?;
            }
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&beside, &place)
        };
        write().map_err(|error| DiskError::io("write", &beside, error))?;
        sync_folder(&self.folder)?;
        for old in journals(&self.folder)?.into_iter().filter(|&number| number < journal) {
            let path = journal::path_of(&self.folder, old);
            fs::remove_file(&path).map_err(|error| DiskError::io("remove", &path, error))?;
        }
        Ok(())
    }
}

/// The first journal that it does not hold, and what it does.
fn read_snapshot(path: &Path) -> Result<(u64, Vec<Record>), DiskError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, Vec::new())),
        Err(error) => return Err(DiskError::io("open", path, error)),
    };
    let mut file = BufReader::with_capacity(1 << 20, file);
    let damaged = |records: usize| DiskError::Damaged { path: path.to_owned(), records: records as u64 };
    let mut header = [0; HEADER];
    file.read_exact(&mut header).map_err(|_| damaged(0))?;
    let (numbers, checksum) = header.split_at(HEADER - 4);
    let (magic, journal, count) = (&numbers[..8], &numbers[8..16], &numbers[16..]);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    if magic != MAGIC || number(checksum) != u64::from(crc32fast::hash(numbers)) {
        return Err(damaged(0));
    }
    let mut records = Vec::new();
    for _ in 0..number(count) {
        let record = Record::read(&mut file).map_err(|error| DiskError::io("read", path, error))?;
        records.push(record.ok_or_else(|| damaged(records.len()))?);
    }
    Ok((number(journal), records))
}

fn read_journal(path: &Path, records: &mut Vec<Record>) -> Result<(), DiskError> {
    let failure = |error| DiskError::io("read", path, error);
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failure)?);
    while let Some(record) = Record::read(&mut file).map_err(failure)? {
        records.push(record);
    }
    Ok(())
}

fn journals(folder: &Path) -> Result<Vec<u64>, DiskError> {
    let failure = |error| DiskError::io("list", folder, error);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(failure)? {
        let name = entry.map_err(failure)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("journal-")?.parse::<u64>().ok());
        numbers.extend(number);
    }
    Ok(numbers)
}

pub fn sync_folder(folder: &Path) -> Result<(), DiskError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| DiskError::io("sync", folder, error))
}
