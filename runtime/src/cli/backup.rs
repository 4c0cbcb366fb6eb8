//! `weft backup` and `weft restore`.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use tempfile::NamedTempFile;

use super::client::{Client, ClientError};
use super::output::{Output, bytes};
use crate::blob::BlobPlace;

/// Every tar file ends with this many zeros.
const TAR_END: usize = 1_024;

#[derive(Args)]
pub struct BackupArgs {
    /// Where to write the backup; replaced only once the new one is whole
    file: PathBuf,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// What `weft backup` wrote
    file: PathBuf,
    /// The data directory to make; it must hold no data yet
    #[arg(long, env = "WEFT_DATA_DIR", value_name = "FOLDER")]
    data_dir: PathBuf,
    /// Where the node will keep its blobs: empty for the data directory, or `s3://BUCKET/PREFIX`
    #[arg(long, env = "WEFT_BLOB_STORE", value_name = "PLACE", default_value = "")]
    blob_store: String,
    /// As the node's setting
    #[arg(long, env = "WEFT_S3_ENDPOINT", value_name = "URL", default_value = "")]
    s3_endpoint: String,
    /// As the node's setting
    #[arg(long, env = "WEFT_S3_REGION", value_name = "REGION", default_value = "")]
    s3_region: String,
}

pub fn save(args: BackupArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let folder = match args.file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let cannot_write = || format!("cannot write `{}`", args.file.display());
    // Only its owner can read it: it holds everyone's functions.
    let mut staged = NamedTempFile::with_prefix_in(".weft-backup-", folder).with_context(cannot_write)?;
    let size = receive(&mut client.backup()?, staged.as_file_mut())?;
    staged.as_file().sync_all().with_context(cannot_write)?;
    staged.persist(&args.file).with_context(cannot_write)?;
    let sentence = format!("saved {} in {}", bytes(size), args.file.display());
    out.done(&json!({"file": args.file, "size": size}), sentence)
}

/// Copies a tar stream, and makes sure that all of it came.
fn receive(from: &mut impl Read, to: &mut (impl Read + Write + Seek)) -> anyhow::Result<u64> {
    let mut buffer = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ClientError::Cut(error.to_string()).into()),
        };
        to.write_all(&buffer[..count]).context("cannot write the backup")?;
        size += count as u64;
    }
    let mut end = [1; TAR_END];
    if size >= TAR_END as u64 {
        to.seek(SeekFrom::End(-(TAR_END as i64)))?;
        to.read_exact(&mut end)?;
    }
    if end != [0; TAR_END] {
        return Err(ClientError::Cut("the archive has no end".to_owned()).into());
    }
    Ok(size)
}

pub fn restore(args: RestoreArgs, out: &Output) -> anyhow::Result<()> {
    let place = BlobPlace::parse(&args.blob_store, &args.s3_endpoint, &args.s3_region)?;
    crate::data_dir::keep_others_out();
    let summary = crate::backup::restore(&args.file, &args.data_dir, &place)?;
    let sentence = format!(
        "restored {} records and {} components ({}); start a node with `--data-dir {}`",
        summary.records,
        summary.components,
        bytes(summary.bytes),
        args.data_dir.display()
    );
    out.done(&summary, sentence)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_whole_archive_is_kept_as_it_is() {
        let archive = [vec![7; 300_000], vec![0; TAR_END]].concat();
        let mut kept = Cursor::new(Vec::new());
        assert_eq!(receive(&mut archive.as_slice(), &mut kept).unwrap(), archive.len() as u64);
        assert_eq!(kept.into_inner(), archive);
    }

    #[test]
    fn an_archive_without_its_end_is_refused() {
        for short in [vec![], vec![0; 100], vec![7; 5_000]] {
            assert!(receive(&mut short.as_slice(), &mut Cursor::new(Vec::new())).is_err());
        }
    }
}
