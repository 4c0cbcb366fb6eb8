//! Reads a data set in shards, in a process of its own, so that a test can see how much memory that takes.
//!
//! `read-shards BLOBS MANIFEST SHARDS` prints, in JSON, how many samples each shard had, how many of each class there were,
//! and the most bytes that the process has had in memory.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use weft::blob::Blobs;
use weft::catalog::BlobBlocks;
use weft::dataset::Manifest;
use weft::dataset::batches::{Batches, Options, Source, Subset};
use weft::dataset::blocks::{CACHE_BYTES, Cache};
use weft::dataset::shard::Plan;
use weft::digest::Digest;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Context, Crew, Limits};
use weft_tests::node::most_resident;

const BATCH: u32 = 500;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, manifest, shards] = arguments.as_slice() else { bail!("read-shards BLOBS MANIFEST SHARDS") };
    let (digest, shards): (Digest, u64) = (manifest.parse()?, shards.parse()?);
    let staging = tempfile::tempdir()?;
    let blobs = Blobs::folder(root.into(), staging.path().to_owned())?;
    let size = fs::metadata(Path::new(root).join(&digest.hex()[..2]).join(&digest.hex()[2..]))?.len();
    let manifest = Manifest::parse(&blobs.read_blocking(&digest, 0..size)?)?;
    let blocks = Arc::new(Cache::new(Arc::new(BlobBlocks(blobs)), CACHE_BYTES));
    let device = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let (mut classes, mut samples) = (vec![0_u64; manifest.train.classes.len()], Vec::new());
    let batch = NonZeroU32::new(BATCH).context("no batch")?;
    for shard in 0..shards {
        let plan = Plan { shards, seed: 7, ..Plan::default() };
        let source = Source { name: "large", manifest: &manifest, part: Subset::Train, blocks: blocks.clone() };
        let mut read = 0;
        for batch in Batches::start(source, Options { shard, ..Options::new(plan, batch) }, &device)? {
            let batch = batch?;
            read += batch.count as u64;
            for label in batch.labels.context("no labels")?.to_vec::<i32>()? {
                *classes.get_mut(usize::try_from(label)?).context("a class that there is not")? += 1;
            }
        }
        samples.push(read);
    }
    let most = most_resident(rustix::process::getpid())?;
    println!("{}", json!({ "samples": samples, "classes": classes, "most_resident": most }));
    Ok(())
}
