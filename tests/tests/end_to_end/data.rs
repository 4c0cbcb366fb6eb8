//! Data sets, models and uploads: over HTTP, against nodes that are killed, full and asked for the same thing twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::catalog::PART_BYTES;
use weft::digest::Digest;
use weft_tests::http::{Answer, Client};
use weft_tests::node::Node;

mod crashes;
mod datasets;
mod deadlines;
mod keeping;
mod large;
mod looking;
mod models;
mod quotas;
mod races;
mod uploads;

const PART: usize = PART_BYTES as usize;

/// Begins an upload, or finds it as far as it has come.
fn begin(client: &Client, digest: &str, size: usize) -> Result<Answer> {
    client.post("/v1/uploads", &json!({ "digest": digest, "size": size }))
}

fn send_part(client: &Client, digest: &str, index: usize, bytes: &[u8]) -> Result<Answer> {
    client.send("PUT", &format!("/v1/uploads/{digest}/parts/{index}"), &[], bytes)
}

/// The parts that an upload lacks.
fn missing(upload: &Value) -> Result<Vec<usize>> {
    Ok(serde_json::from_value(upload["missing"].clone())?)
}

/// Sends whatever of a file has not been sent, and gives the upload's digest.
pub(super) fn upload(client: &Client, bytes: &[u8]) -> Result<String> {
    let digest = Digest::of(bytes).to_string();
    let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    for index in missing(&begin(client, &digest, bytes.len())?.json()?)? {
        send_part(client, &digest, index, parts.get(index).context("a part that there is not")?)?.json()?;
    }
    Ok(digest)
}

fn delete(client: &Client, path: &str) -> Result<u16> {
    Ok(client.send("DELETE", path, &[], b"")?.status)
}

fn create(client: &Client, name: &str, spec: &Value) -> Result<Answer> {
    client.send("PUT", &format!("/v1/datasets/{name}"), &[], &serde_json::to_vec(spec)?)
}

fn append(client: &Client, name: &str, spec: &Value) -> Result<Answer> {
    client.post(&format!("/v1/datasets/{name}/append"), spec)
}

fn show(client: &Client, name: &str) -> Result<Value> {
    client.get(&format!("/v1/datasets/{name}"))?.json()
}

/// A data set of one uploaded file.
fn of_file(digest: &str, name: &str) -> Value {
    json!({ "train": [{ "features": { "upload": digest, "name": name } }] })
}

/// Samples that a rule makes.
fn synthetic(train: u64, seed: u64) -> Value {
    json!({ "synthetic": { "kind": "higgs", "train": train, "seed": seed } })
}

/// What the tenant is charged for.
fn stored(client: &Client) -> Result<u64> {
    Ok(client.usage()?.now.stored_bytes)
}

/// A file of numpy: version 1.0, C order.
fn npy(kind: &str, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|size| format!("{size},")).collect();
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let header = format!("{text:padding$}\n", padding = padded - 1);
    [b"\x93NUMPY\x01\x00", &(padded as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
}

/// Bytes that no other seed gives.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(count).collect()
}

/// A file with so many samples of `width` bytes that no other seed gives.
fn noisy_npy(seed: u64, count: usize, width: usize) -> Vec<u8> {
    npy("|u1", &[count, width], &noise(seed, count * width))
}

/// The files below a folder of the data directory, with their bytes.
fn files(node: &Node, folder: &str) -> Result<BTreeMap<String, u64>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, u64>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            // It may go while it is looked at.
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => walk(root, &path, found)?,
                Ok(meta) => drop(found.insert(path.strip_prefix(root)?.display().to_string(), meta.len())),
                Err(_) => {}
            }
        }
        Ok(())
    }
    let (root, mut found) = (node.data_dir().join(folder), BTreeMap::new());
    walk(&root, &root, &mut found)?;
    Ok(found)
}

/// Where no two records share content, the bytes on disk are those that tenants are charged for, and no file is left over.
fn disk_holds_what_is_charged(node: &Node, client: &Client) -> Result<()> {
    let (blobs, staged) = (files(node, "blobs")?, files(node, "staging")?);
    let (on_disk, charged) = (blobs.values().sum::<u64>(), stored(client)?);
    ensure!(on_disk == charged, "{on_disk} bytes on disk, {charged} charged: {blobs:?}");
    ensure!(staged.is_empty(), "staging holds {staged:?}");
    Ok(())
}
