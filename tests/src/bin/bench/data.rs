//! Batches of a data set as large as MNIST: shuffled, standardised, in tensors of the CPU device.
//!
//! Stands beside a copy, on one thread as well, of floats that are ready and in order: what a loader would do that had
//! nothing to shuffle or convert. Every byte of f32 counts once on both sides. Real MNIST is used where the folder that
//! `WEFT_MNIST` names has its training files; what is generated instead has the same shape, and takes the same time.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use weft::dataset::batches::{Assembler, Batch, BatchError, Batches, Options, Source, Subset};
use weft::dataset::blocks::{CACHE_BYTES, Cache};
use weft::dataset::manifest::{BlockRef, FORMAT, Statistics, Transform};
use weft::dataset::rows::Element;
use weft::dataset::shard::Plan;
use weft::dataset::{Features, Labels, Manifest, Split};
use weft::digest::Digest;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Context, Crew, Limits};

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "data";
const ROUNDS: usize = 15;
const SAMPLES: usize = 60_000;
const PIXELS: usize = 28 * 28;
const BATCH: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// About 4 MB of them.
const BLOCK_SAMPLES: usize = 5_000;

pub fn run() -> Result<()> {
    let metrics = ["dataset.mnist_batches", "dataset.mnist_batches_ahead"];
    if !metrics.iter().any(|metric| is_wanted(metric)) {
        return Ok(());
    }
    let (images, labels) = match std::env::var_os("WEFT_MNIST") {
        Some(folder) => {
            eprintln!("  samples: MNIST");
            mnist(Path::new(&folder))?
        }
        None => {
            eprintln!("  samples: generated, of the shape of MNIST (WEFT_MNIST names no folder)");
            generated()
        }
    };
    let (manifest, blocks) = data_set(&images, &labels);
    let cache = Arc::new(Cache::new(Arc::new(blocks), CACHE_BYTES));
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let start = |epoch| {
        let source = Source { name: "mnist", manifest: &manifest, part: Subset::Train, blocks: cache.clone() };
        (source, Options::new(Plan { epoch, ..Plan::default() }, BATCH))
    };
    let at_once = |epoch| {
        let (source, options) = start(epoch);
        count(Assembler::new(source, options, &context)?)
    };
    let ahead = |epoch| {
        let (source, options) = start(epoch);
        count(Batches::start(source, options, &context)?)
    };
    let ready: Vec<f32> = images.iter().map(|&pixel| f32::from(pixel)).collect();
    let mut into = vec![0.0_f32; BATCH.get() as usize * PIXELS];
    let mut copy = || {
        for batch in ready.chunks(into.len()) {
            into[..batch.len()].copy_from_slice(batch);
            black_box(&mut into);
        }
        Ok(())
    };
    let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS as u64 {
        let bytes = [per_second(|| at_once(round))?, per_second(|| ahead(round))?, per_second(&mut copy)?];
        // Once without being counted: the blocks come into the cache.
        if round > 0 {
            rounds.iter_mut().zip(bytes).for_each(|(round, bytes)| round.push(bytes));
        }
    }
    let [at_once, ahead, copied] = rounds.map(|mut round| percentile(&mut round, 0.5));
    for (metric, value) in metrics.into_iter().zip([at_once, ahead]) {
        if is_wanted(metric) {
            Measurement::beside(BENCH, metric, "per_s", value, copied).print()?;
        }
    }
    Ok(())
}

/// Bytes of f32 a second in one epoch.
fn per_second(epoch: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    epoch()?;
    Ok((SAMPLES * PIXELS * 4) as f64 / start.elapsed().as_secs_f64())
}

/// Takes batches as a step would, one at a time.
fn count(batches: impl Iterator<Item = Result<Batch, BatchError>>) -> Result<()> {
    let mut samples = 0;
    for batch in batches {
        samples += black_box(batch?).count;
    }
    ensure!(samples == SAMPLES, "an epoch had {samples} samples");
    Ok(())
}

/// Images and labels of the training files.
fn mnist(folder: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let read = |name: &str, header: usize, bytes: usize| {
        let path = folder.join(name);
        let file = std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        ensure!(file.len() == header + bytes, "`{}` is not a file of MNIST", path.display());
        Ok(file[header..].to_vec())
    };
    Ok((read("train-images-idx3-ubyte", 16, SAMPLES * PIXELS)?, read("train-labels-idx1-ubyte", 8, SAMPLES)?))
}

fn generated() -> (Vec<u8>, Vec<u8>) {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let images = (0..SAMPLES * PIXELS).map(|_| next()).collect();
    (images, (0..SAMPLES).map(|_| next() % 10).collect())
}

fn data_set(images: &[u8], labels: &[u8]) -> (Manifest, HashMap<Digest, Bytes>) {
    let (mut train, mut blocks) = (Split { classes: vec![0; 10], ..Split::default() }, HashMap::new());
    for (images, labels) in images.chunks(BLOCK_SAMPLES * PIXELS).zip(labels.chunks(BLOCK_SAMPLES)) {
        let mut bytes: Vec<u8> = labels.iter().flat_map(|&label| i32::from(label).to_le_bytes()).collect();
        bytes.extend_from_slice(images);
        labels.iter().for_each(|&label| train.classes[usize::from(label) % 10] += 1);
        train.count += labels.len() as u64;
        let block = BlockRef { digest: Digest::of(&bytes), count: labels.len() as u32, bytes: bytes.len() as u64 };
        blocks.insert(block.digest, bytes.into());
        train.blocks.push(block);
    }
    let count = images.len() as f64;
    let mean = images.iter().map(|&pixel| f64::from(pixel)).sum::<f64>() / count;
    let squares = images.iter().map(|&pixel| (f64::from(pixel) - mean).powi(2)).sum();
    let statistics = Statistics {
        count: images.len() as u64,
        mean: vec![mean],
        squares: vec![squares],
        low: vec![0.0],
        high: vec![255.0],
    };
    let manifest = Manifest {
        format: FORMAT,
        features: Features::Dense { element: Element::U8, shape: vec![1, 28, 28] },
        labels: Some(Labels::Class),
        transform: Transform::Standardise,
        statistics,
        train,
        test: Split::default(),
        synthetic: None,
        class_names: Vec::new(),
    };
    (manifest, blocks)
}
