//! Sends a file to a node, part by part. What came before an interruption is not sent again.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, bail};

use super::client::{Client, ClientError};
use super::output::{Output, bytes};
use crate::api::types::{UploadRequest, UploadView};
use crate::digest::Digest;

/// Times that a part is sent before giving up, where the connection breaks.
const ATTEMPTS: usize = 3;

/// Sends a file and gives the name of the upload: its digest.
pub fn file(path: &Path, client: &Client, out: &Output) -> anyhow::Result<String> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read `{shown}`"))?.len();
    if size == 0 {
        bail!("`{shown}` is empty");
    }
    let digest = Digest::of_file(path).with_context(|| format!("cannot read `{shown}`"))?.to_string();
    let upload = client.begin_upload(&UploadRequest { digest: digest.clone(), size })?;
    let sent = parts(path, &upload, client, out);
    if let Err(error) = &sent {
        // A tenant without room would not get it back before the upload expires.
        let full = error.downcast_ref::<ClientError>().and_then(ClientError::kind) == Some("quota-exceeded");
        if full {
            client.delete_upload(&digest).ok();
        }
    }
    sent.map(|()| digest)
}

fn parts(path: &Path, upload: &UploadView, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let live = io::stderr().is_terminal() && !out.is_quiet() && !out.is_json();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for (sent, &index) in upload.missing.iter().enumerate() {
        let start = index as u64 * upload.part_bytes;
        let length = upload.part_bytes.min(upload.size - start.min(upload.size));
        let mut part = vec![0; usize::try_from(length)?];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut part).with_context(|| format!("`{}` became shorter", path.display()))?;
        send(client, upload, index, &part)?;
        if live {
            let left = (upload.missing.len() - sent - 1) as u64 * upload.part_bytes;
            eprint!("\r{name}: {} of {}   ", bytes(upload.size.saturating_sub(left)), bytes(upload.size));
        }
    }
    if live && !upload.missing.is_empty() {
        eprintln!();
    }
    Ok(())
}

fn send(client: &Client, upload: &UploadView, index: usize, part: &[u8]) -> Result<(), ClientError> {
    let mut attempt = 1;
    loop {
        match client.send_part(&upload.digest, index, part) {
            Err(ClientError::Cut(_) | ClientError::HungUp { .. } | ClientError::Timeout { .. })
                if attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            done => return done.map(drop),
        }
    }
}
