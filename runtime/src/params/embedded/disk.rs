//! What the store has on disk: one snapshot, and journals of what had to be durable since.
//!
//! A snapshot is written beside its place, synced, and renamed: there is a whole one at any moment. It names the first
//! journal that it does not hold all of; older ones are deleted after it is in place. A journal ends where a record is
//! not whole: what is behind was never acknowledged, unless its mark comes again (see [`journal`]). Then the journal is
//! damaged, and that is an error.
//!
//! Snapshots and journals also carry the store's clock, so that no version is given out twice.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::frame::Record;
use super::journal::{self, Journal, Pending};
use crate::clock::unix_ms;

/// Begins every snapshot; the number of the format is in it.
const MAGIC: [u8; 8] = *b"weftpar2";

/// Of a snapshot: magic, the first journal, the number of records, the clock, a checksum.
const HEADER: usize = 36;

/// The format before, which has no clock.
const OLD_MAGIC: [u8; 8] = *b"weftpar1";
const OLD_HEADER: usize = 28;

/// What versions skip for each start since the last one that is known to have given some out: more than one can have given
/// out since the last snapshot.
const RESTART_SKIPS: u64 = 1 << 32;

/// Versions for each second since 1970: where they begin at the least, should nothing have been saved at all.
const VERSIONS_PER_SECOND: u64 = 1 << 20;

const SNAPSHOT: &str = "snapshot";

/// A snapshot that is being written.
const UNFINISHED: &str = "snapshot.new";

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
    #[error(
        "the journal `{}` of the parameter store is damaged at byte {at}, and values that were acknowledged come after \
         that: put a good copy in its place, or cut it off at this byte to go on without them",
        path.display()
    )]
    DamagedJournal { path: PathBuf, at: u64 },
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

/// What a folder held.
pub struct Found {
    pub records: Vec<Record>,
    /// How many of these, the first ones, are in the snapshot.
    pub in_snapshot: usize,
    /// Versions and epochs are given out from here on.
    pub clock: u64,
    /// Whether there is more than one snapshot would hold.
    pub journals: bool,
}

impl Disk {
    /// Reads what is there, and begins a new journal.
    pub fn open(folder: &Path) -> Result<(Self, Found), DiskError> {
        fs::create_dir_all(folder).map_err(|error| DiskError::io("create", folder, error))?;
        // A crash may have left one, as large as the disk was.
        fs::remove_file(folder.join(UNFINISHED)).ok();
        let Snapshot { journal: first, mut records, mut clock } = read_snapshot(&snapshot_path(folder))?;
        let in_snapshot = records.len();
        let mut numbers = journals(folder)?;
        numbers.sort_unstable();
        let next = numbers.last().map_or(first, |last| last + 1).max(first);
        // Of the journals that were begun since the snapshot, those that tell nothing of the clock.
        let mut silent = next - first;
        let mut found = false;
        for number in numbers {
            let (path, before) = (journal::path_of(folder, number), records.len());
            let is_whole = number < first || read_journal(&path, &mut records)?;
            // One that is not whole stays until there is a snapshot, for whoever wants to look at it.
            match is_whole && records.len() == before {
                true => fs::remove_file(&path).map_err(|error| DiskError::io("remove", &path, error))?,
                false => found = true,
            }
            silent -= u64::from(records.len() > before);
        }
        // A start that found the disk full has begun a journal and has given out versions, but could not write down where
        // they began. So as many are skipped for each such start as for any other.
        let skipped = RESTART_SKIPS.saturating_mul(1 + silent);
        clock = clock.max(unix_ms() / 1_000 * VERSIONS_PER_SECOND);
        clock = records.iter().map(Record::version).fold(clock, u64::max).saturating_add(skipped);
        let journal = Journal::start(folder, next, &[Record::Clock { version: clock }])?;
        Ok((Self { folder: folder.to_owned(), journal }, Found { records, in_snapshot, clock, journals: found }))
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

    /// Replaces the snapshot by what `fill` adds to it, which holds all that is in journals before `journal`. It gives
    /// the clock: no later version is in what it has added.
    pub fn write_snapshot(
        &self,
        journal: u64,
        fill: impl FnOnce(&mut SnapshotFile) -> io::Result<u64>,
    ) -> Result<(), DiskError> {
        let (place, beside) = (snapshot_path(&self.folder), self.folder.join(UNFINISHED));
        let write = || -> io::Result<()> {
            let mut snapshot =
                SnapshotFile { file: BufWriter::with_capacity(1 << 20, File::create(&beside)?), records: 0 };
            // How many there are, and the clock, is known when all are there.
            snapshot.file.write_all(&[0; HEADER])?;
            let clock = fill(&mut snapshot)?;
            let count = snapshot.records;
            let mut file = snapshot.file.into_inner().map_err(io::IntoInnerError::into_error)?;
            let header = [MAGIC, journal.to_le_bytes(), count.to_le_bytes(), clock.to_le_bytes()].concat();
            file.seek(io::SeekFrom::Start(0))?;
            file.write_all(&header)?;
            file.write_all(&crc32fast::hash(&header).to_le_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &place)
        };
        write().map_err(|error| {
            // Whoever waits for room on a full disk would wait for ever if a part of a snapshot took it.
            fs::remove_file(&beside).ok();
            DiskError::io("write", &beside, error)
        })?;
        sync_folder(&self.folder)?;
        for old in journals(&self.folder)?.into_iter().filter(|&number| number < journal) {
            let path = journal::path_of(&self.folder, old);
            fs::remove_file(&path).map_err(|error| DiskError::io("remove", &path, error))?;
        }
        Ok(())
    }
}

/// A snapshot that is being written.
pub struct SnapshotFile {
    file: BufWriter<File>,
    records: u64,
}

impl SnapshotFile {
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        self.records += 1;
        record.write(&mut self.file).map(drop)
    }
}

#[derive(Default)]
struct Snapshot {
    /// The first journal that it does not hold.
    journal: u64,
    records: Vec<Record>,
    clock: u64,
}

fn read_snapshot(path: &Path) -> Result<Snapshot, DiskError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Snapshot::default()),
        Err(error) => return Err(DiskError::io("open", path, error)),
    };
    let mut file = BufReader::with_capacity(1 << 20, file);
    let damaged = |records: usize| DiskError::Damaged { path: path.to_owned(), records: records as u64 };
    let mut header = [0; HEADER];
    file.read_exact(&mut header[..OLD_HEADER]).map_err(|_| damaged(0))?;
    let length = if header.starts_with(&OLD_MAGIC) { OLD_HEADER } else { HEADER };
    file.read_exact(&mut header[OLD_HEADER..length]).map_err(|_| damaged(0))?;
    let (numbers, checksum) = header[..length].split_at(length - 4);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let is_known = numbers.starts_with(&MAGIC) || numbers.starts_with(&OLD_MAGIC);
    if !is_known || number(checksum) != u64::from(crc32fast::hash(numbers)) {
        return Err(damaged(0));
    }
    let (journal, count, clock) = (number(&numbers[8..16]), number(&numbers[16..24]), number(&numbers[24..]));
    let mut records = Vec::new();
    for _ in 0..count {
        let record = Record::read(&mut file).map_err(|error| DiskError::io("read", path, error))?;
        records.push(record.ok_or_else(|| damaged(records.len()))?);
    }
    Ok(Snapshot { journal, records, clock })
}

/// Says whether there is nothing after the last record that is whole.
fn read_journal(path: &Path, records: &mut Vec<Record>) -> Result<bool, DiskError> {
    let failure = |error| DiskError::io("read", path, error);
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failure)?);
    // As it stands in the file. Journals of earlier versions have none.
    let mut mark: Option<Vec<u8>> = None;
    loop {
        let at = file.stream_position().map_err(failure)?;
        match Record::read(&mut file).map_err(failure)? {
            Some(begin @ Record::Begin { .. }) if mark.is_none() => {
                begin.write(mark.insert(Vec::new())).map_err(failure)?;
            }
            Some(Record::Begin { .. }) => {}
            Some(record) => records.push(record),
            None => {
                let mut rest = Vec::new();
                file.seek(io::SeekFrom::Start(at)).map_err(failure)?;
                file.read_to_end(&mut rest).map_err(failure)?;
                // What is cut off is the end. A mark behind what is not whole says that it was whole once. Where the first
                // mark itself is not whole, nobody knows which one the journal has, so that any counts.
                let acknowledged = match mark {
                    Some(mark) => rest.windows(mark.len()).any(|bytes| bytes == mark),
                    None => at == 0 && journal::holds_mark(&rest).map_err(failure)?,
                };
                return match acknowledged {
                    true => Err(DiskError::DamagedJournal { path: path.to_owned(), at }),
                    false => Ok(rest.is_empty()),
                };
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Entry, Space, Value};

    /// As earlier versions have written it: no clock, and the tenant's name for its id.
    #[test]
    fn a_folder_of_an_earlier_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let space = Space::of_job("ada".parse().unwrap(), "job".parse().unwrap());
        let entry = |version| Entry { version, value: Value::bytes(vec![7; 10]), expires: None };
        let put = |version| Record::put(&space, &"a".parse().unwrap(), &entry(version), true);
        let mut snapshot = [OLD_MAGIC, 3_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat();
        snapshot.extend(crc32fast::hash(&snapshot).to_le_bytes());
        put(1 << 60).write(&mut snapshot).unwrap();
        fs::write(snapshot_path(folder.path()), snapshot).unwrap();
        let mut journal = Vec::new();
        put((1 << 60) + 1).write(&mut journal).unwrap();
        journal.extend(b"cut off");
        fs::write(journal::path_of(folder.path(), 3), journal).unwrap();
        let (_disk, found) = Disk::open(folder.path()).unwrap();
        assert_eq!(found.records, [put(1 << 60), put((1 << 60) + 1)]);
        assert!(found.clock > (1 << 60) + 1);
    }
}
