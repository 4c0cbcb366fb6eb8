//! A data set of 2 GB, made and read in a fraction of that memory.

use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::blob::Blobs;
use weft::catalog::BlobBlocks;
use weft::dataset::Manifest;
use weft::dataset::batches::{Batches, Options as BatchOptions, Part, Source};
use weft::dataset::blocks::{CACHE_BYTES, Cache};
use weft::dataset::shard::Plan;
use weft::digest::{Digest, Hasher};
use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Context as Device, Crew, Limits};
use weft_tests::node::{Options, most_resident};

use super::*;

/// The most memory that a process may have had, in bytes.
const MOST: u64 = 300_000_000;
const SAMPLES: usize = 2_000_000;
const WIDTH: usize = 1_000;
const CLASSES: usize = 10;
const SHARDS: u64 = 4;
/// Where the process that reads finds the node's blobs, and which of them is the manifest.
const BLOBS: &str = "WEFT_TEST_BLOBS";
const MANIFEST: &str = "WEFT_TEST_MANIFEST";

/// A file of many bytes, made part by part.
struct Large {
    head: Vec<u8>,
    pattern: Vec<u8>,
    size: usize,
}

impl Large {
    fn new(samples: usize) -> Self {
        let head = npy("|u1", &[samples, WIDTH], &[]);
        Self { size: head.len() + samples * WIDTH, head, pattern: noise(1, PART) }
    }

    fn part(&self, index: usize) -> Vec<u8> {
        let start = index * PART;
        let mut bytes = self.pattern.clone();
        // No two parts alike, wherever blocks begin.
        for (page, place) in bytes.chunks_mut(4_096).enumerate() {
            place[..8].copy_from_slice(&((start + page) as u64).to_le_bytes());
        }
        if index == 0 {
            bytes[..self.head.len()].copy_from_slice(&self.head);
        }
        bytes.truncate(self.size - start);
        bytes
    }

    fn parts(&self) -> usize {
        self.size.div_ceil(PART)
    }
}

#[test]
fn a_large_data_set_is_created_and_read_in_shards_in_little_memory() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let large = Large::new(SAMPLES);
    let mut hasher = Hasher::default();
    (0..large.parts()).for_each(|index| hasher.update(&large.part(index)));
    let digest = hasher.finish().to_string();
    begin(&client, &digest, large.size)?.json()?;
    for index in 0..large.parts() {
        send_part(&client, &digest, index, &large.part(index))?.json()?;
    }
    let labels: Vec<u8> = (0..SAMPLES).map(|sample| (sample % CLASSES) as u8).collect();
    let labels = upload(&client, &npy("|u1", &[SAMPLES], &labels))?;
    let spec = json!({ "train": [{
        "features": { "upload": digest, "name": "x.npy" }, "labels": { "upload": labels, "name": "y.npy" },
    }]});
    let made = create(&client, "large", &spec)?.json()?;
    ensure!(made["train"] == SAMPLES, "{made}");
    let most = most_resident(node.pid())?;
    eprintln!("creating {} MB took {} MB of memory", large.size / 1_000_000, most / 1_000_000);
    ensure!(most < MOST, "the node has had {most} bytes in memory");
    let this = "end_to_end::data::large::reads_in_shards";
    let output = Command::new(std::env::current_exe()?)
        .args(["--exact", this, "--ignored", "--nocapture"])
        .env(BLOBS, node.data_dir().join("blobs"))
        .env(MANIFEST, made["version"].as_str().context("no version")?)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    eprintln!("{said}");
    ensure!(output.status.success() && said.contains("1 passed"), "{said}");
    Ok(())
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn reads_in_shards() -> Result<()> {
    let told = |name| std::env::var(name).with_context(|| format!("`{name}` is not set: another test starts this one"));
    let (root, manifest) = (told(BLOBS)?, told(MANIFEST)?);
    let staging = tempfile::tempdir()?;
    let blobs = Blobs::folder(root.clone().into(), staging.path().to_owned())?;
    let digest: Digest = manifest.parse()?;
    let size = fs::metadata(Path::new(&root).join(&digest.hex()[..2]).join(&digest.hex()[2..]))?.len();
    let manifest = Manifest::parse(&blobs.read_blocking(&digest, 0..size)?)?;
    let blocks = Arc::new(Cache::new(Arc::new(BlobBlocks(blobs)), CACHE_BYTES));
    let device = Device::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let mut classes = vec![0_u64; CLASSES];
    let batch = NonZeroU32::new(500).context("no batch")?;
    for shard in 0..SHARDS {
        let plan = Plan { shards: SHARDS, seed: 7, ..Plan::default() };
        let source = Source { name: "large", manifest: &manifest, part: Part::Train, blocks: blocks.clone() };
        let mut read = 0;
        for batch in Batches::start(source, BatchOptions { shard, ..BatchOptions::new(plan, batch) }, &device)? {
            let batch = batch?;
            read += batch.count as u64;
            for label in batch.labels.context("no labels")?.to_vec::<i32>()? {
                classes[usize::try_from(label)?] += 1;
            }
        }
        ensure!(read == manifest.train.count / SHARDS, "shard {shard} has {read} samples");
    }
    ensure!(classes == manifest.train.classes, "{classes:?}");
    let most = most_resident(rustix::process::getpid())?;
    eprintln!("reading it in {SHARDS} shards took {} MB of memory", most / 1_000_000);
    ensure!(most < MOST, "the reader has had {most} bytes in memory");
    Ok(())
}
