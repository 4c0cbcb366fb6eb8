//! A data set of 2 GB, made and read in a fraction of that memory.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::digest::Hasher;
use weft_tests::node::{Options, most_resident};

use super::*;

/// The most memory that a process may have had, in bytes.
const MOST: u64 = 300_000_000;
const SAMPLES: usize = 2_000_000;
const WIDTH: usize = 1_000;
const CLASSES: usize = 10;
const SHARDS: usize = 4;

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
    let output = Command::new(env!("CARGO_BIN_EXE_read-shards"))
        .arg(node.data_dir().join("blobs"))
        .args([made["version"].as_str().context("no version")?, &SHARDS.to_string()])
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(read["samples"] == json!(vec![SAMPLES / SHARDS; SHARDS]), "{read}");
    ensure!(read["classes"] == json!(vec![SAMPLES / CLASSES; CLASSES]), "{read}");
    let most = read["most_resident"].as_u64().context("no memory")?;
    eprintln!("reading it in {SHARDS} shards took {} MB of memory", most / 1_000_000);
    ensure!(most < MOST, "the reader has had {most} bytes in memory");
    Ok(())
}
