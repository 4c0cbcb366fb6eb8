//! Backups: one tar archive of every record and every blob that one names, as of one moment, taken while the node serves.
//!
//! ```text
//! weft-backup.json   the format
//! metadata.json      every record but those of compiled artifacts, which are made again
//! params/snapshot    the node's own parameter store; what is in a Redis is not carried over
//! blobs/HEX          each component, block, model and checkpoint, under its digest
//! complete           comes last, so that an archive that was cut off is noticed
//! ```
//! Keys are not in it, only their hashes: they go on working after a restore.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::blob::{BlobError, BlobPlace, BlobReader, Blobs, Pinned, publish_file};
use crate::data_dir::DataDir;
use crate::digest::Digest;
use crate::meta::{Entry, Metadata};
use crate::node::{Identity, Node};
use crate::params::embedded::disk;

const FORMAT: u32 = 1;
const PIECE: usize = 64 << 10;
const HEAD: &str = "weft-backup.json";
const RECORDS: &str = "metadata.json";
const PARAMS: &str = "params/snapshot";
const END: &str = "complete";
/// Records that are not carried over: they belong to one machine's engine.
const LEFT_OUT: &str = "artifacts";

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    weft: String,
    created_ms: u64,
}

/// What a restore brought back.
#[derive(Debug, Serialize)]
pub struct RestoreSummary {
    pub records: usize,
    pub components: usize,
    pub bytes: u64,
}

/// The archive, piece by piece. Changes wait for a moment, while it is seen to that all that the records name stays; then
/// everything goes on, however slowly the archive is read.
pub async fn stream(node: Arc<Node>) -> anyhow::Result<impl Stream<Item = io::Result<Bytes>>> {
    let held = (node.registry.hold().await, node.catalog.hold().await, node.jobs.roster.hold().await);
    let studies = node.studies.roster.hold().await;
    let (records, pins) = {
        // Running jobs replace their checkpoints whatever else is held.
        let _still = node.jobs.roster.hold_still().await;
        let mut digests = node.catalog.digests();
        digests.extend(node.registry.all_digests());
        digests.extend(node.jobs.roster.digests());
        (node.metadata.snapshot()?, node.blobs.pin_all(digests).await)
    };
    let records: Vec<Entry> = records.into_iter().filter(|entry| entry.table != LEFT_OUT).collect();
    node.params.save().await?;
    let params = node.params_snapshot()?;
    drop((held, studies));
    let (pieces, received) = mpsc::channel(4);
    let runtime = Handle::current();
    // A thread of its own: it goes at its reader's pace.
    std::thread::Builder::new().name("backup".to_owned()).spawn(move || {
        let written = write(&node, &runtime, &records, params, &pins, Pieces(pieces.clone()));
        if let Err(error) = written {
            // Breaks the answer off, so that the reader notices.
            pieces.blocking_send(Err(error)).ok();
        }
    })?;
    Ok(stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) }))
}

fn write(
    node: &Node,
    runtime: &Handle,
    records: &[Entry],
    params: Option<File>,
    pins: &[Pinned],
    output: Pieces,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(PIECE, output));
    let created_ms = crate::clock::unix_ms();
    let head = Head { format: FORMAT, weft: env!("CARGO_PKG_VERSION").to_owned(), created_ms };
    append(&mut archive, HEAD, &serde_json::to_vec(&head)?)?;
    append(&mut archive, RECORDS, &serde_json::to_vec(records)?)?;
    if let Some(params) = params {
        let size = params.metadata()?.len();
        archive.append_data(&mut header(size), PARAMS, params.take(size))?;
    }
    for digest in pins.iter().map(Pinned::digest) {
        // Checked on the way: a backup that holds a damaged component would be none.
        let blob = runtime.block_on(node.blobs.open(&digest))?;
        let mut header = header(blob.size());
        let reader = Blocking { runtime, inner: blob };
        archive.append_data(&mut header, format!("blobs/{}", digest.hex()), reader)?;
    }
    append(&mut archive, END, b"")?;
    archive.into_inner()?.flush()
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o600);
    header
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len() as u64), name, bytes)
}

/// Writes to whoever streams the archive.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader has gone"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An asynchronous reader for a thread that may block.
struct Blocking<'a> {
    runtime: &'a Handle,
    inner: BlobReader,
}

impl Read for Blocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.runtime.block_on(self.inner.read(buffer))
    }
}

/// Unpacks an archive into a data directory that holds nothing yet. The records are written last, together: a restore
/// that is interrupted leaves a directory that a second one can use.
pub fn restore(file: &Path, data_dir: &Path, place: &BlobPlace) -> anyhow::Result<RestoreSummary> {
    let archive = File::open(file).with_context(|| format!("cannot open `{}`", file.display()))?;
    ensure!(
        !data_dir.join("meta.redb").exists(),
        "`{}` holds data already; restore into a new directory",
        data_dir.display()
    );
    ensure!(*place != BlobPlace::Memory, "blobs in memory would be gone at once; restore to another `blob_store`");
    let data = DataDir::open(data_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut blobs: Option<Arc<Blobs>> = None;
    let mut summary = RestoreSummary { records: 0, components: 0, bytes: 0 };
    let (mut records, mut complete): (Option<Vec<Entry>>, bool) = (None, false);
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(PIECE, archive));
    let broken = || format!("`{}` is not a whole backup", file.display());
    for (index, entry) in archive.entries().with_context(broken)?.enumerate() {
        let mut entry = entry.with_context(broken)?;
        let name = entry.path().with_context(broken)?.to_string_lossy().into_owned();
        // A backup has files and nothing else. A sparse one would be as long on disk as it says, whatever the archive has.
        ensure!(entry.header().entry_type().is_file(), "{}: `{}` is no plain file", broken(), name.escape_debug());
        match name.as_str() {
            HEAD => {
                let head: Head = serde_json::from_reader(&mut entry).with_context(broken)?;
                ensure!(
                    head.format == FORMAT,
                    "backup format {} is not {FORMAT}: it is of weft {}",
                    head.format,
                    head.weft
                );
            }
            _ if index == 0 => bail!("`{}` is not a backup of weft", file.display()),
            RECORDS => {
                let mut found: Vec<Entry> = serde_json::from_reader(&mut entry).with_context(broken)?;
                let owner = Identity::in_records(&mut found)?.id;
                blobs = Some(runtime.block_on(Blobs::start(place, data.blobs(), data.staging(), &owner))?);
                records = Some(found);
            }
            PARAMS => {
                let staged = data.staging().join("params");
                summary.bytes += io::copy(&mut entry, &mut File::create(&staged)?)?;
                publish_file(&staged, &disk::snapshot_path(&data.params()))?;
            }
            END => complete = true,
            blob => {
                let digest: Digest = blob.strip_prefix("blobs/").unwrap_or(blob).parse().with_context(broken)?;
                let blobs = blobs.as_deref().with_context(broken)?;
                summary.bytes += restore_blob(&mut entry, &digest, &data, blobs, runtime.handle())?;
                summary.components += 1;
            }
        }
    }
    let records = records.filter(|_| complete).with_context(|| format!("{}: it was cut off", broken()))?;
    summary.records = records.len();
    let staged = data.staging().join("meta.redb");
    Metadata::open(&staged)?.commit_blocking(records.into())?;
    publish_file(&staged, &data.metadata())?;
    Ok(summary)
}

fn restore_blob(
    entry: &mut impl Read,
    digest: &Digest,
    data: &DataDir,
    blobs: &Blobs,
    runtime: &Handle,
) -> anyhow::Result<u64> {
    let mut staged = tempfile::NamedTempFile::new_in(data.staging())?;
    let size = io::copy(entry, staged.as_file_mut())?;
    match runtime.block_on(blobs.publish(&staged.into_temp_path(), digest)) {
        Ok(_pinned) => Ok(size),
        Err(BlobError::Mismatch { .. }) => bail!("component `{digest}` is damaged in the archive"),
        Err(error) => Err(error.into()),
    }
}
