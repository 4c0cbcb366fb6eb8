use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Crew, Limits};

use super::*;
use crate::dataset::manifest::{BlockRef, FORMAT, Statistics, Transform};
use crate::dataset::rows::{Element, Features, Labels};

mod ahead;
mod contents;
mod memory;

fn context(bytes: usize) -> Context {
    let limits = Limits { device_memory: bytes, ..Limits::default() };
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), limits)
}

fn size(samples: u32) -> NonZeroU32 {
    NonZeroU32::new(samples).unwrap()
}

/// Blocks in memory that write down what is read, and fail or panic where they are told to.
#[derive(Default)]
struct Written {
    blocks: HashMap<Digest, Bytes>,
    read: Mutex<Vec<Digest>>,
    fails: Option<Digest>,
    panics: Option<Digest>,
}

impl Blocks for Written {
    fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
        self.read.lock().unwrap().push(block.digest);
        assert_ne!(self.panics, Some(block.digest), "the disk is on fire");
        if self.fails == Some(block.digest) {
            return Err(io::Error::other("the disk is gone"));
        }
        self.blocks.read(block, range)
    }
}

/// A data set whose sample `i` is the f32 `i`, `i + 0.5`, with the class `i % 3`.
struct Counted {
    manifest: Manifest,
    blocks: Written,
}

impl Counted {
    fn new(counts: &[u32]) -> Self {
        let mut counted = Self {
            manifest: Manifest {
                format: FORMAT,
                features: Features::Dense { element: Element::F32, shape: vec![2] },
                labels: Some(Labels::Class),
                class_names: Vec::new(),
                transform: Transform::None,
                statistics: Statistics::default(),
                train: Split { classes: vec![0; 3], ..Split::default() },
                test: Split::default(),
                synthetic: None,
            },
            blocks: Written::default(),
        };
        for &count in counts {
            let (first, split) = (counted.manifest.train.count as i32, &mut counted.manifest.train);
            let samples = first..first + count as i32;
            let mut bytes: Vec<u8> = samples.clone().flat_map(|sample| (sample % 3).to_le_bytes()).collect();
            let floats = samples.clone().flat_map(|sample| [sample as f32, sample as f32 + 0.5]);
            bytes.extend(floats.flat_map(f32::to_le_bytes));
            samples.for_each(|sample| split.classes[sample as usize % 3] += 1);
            split.count += u64::from(count);
            split.blocks.push(counted.blocks.add(count, bytes));
        }
        counted
    }
}

impl Written {
    fn add(&mut self, count: u32, bytes: Vec<u8>) -> BlockRef {
        let block = BlockRef { digest: Digest::of(&bytes), count, bytes: bytes.len() as u64 };
        self.blocks.insert(block.digest, bytes.into());
        block
    }
}

fn source<'a>(manifest: &'a Manifest, blocks: &Arc<impl Blocks + 'static>) -> Source<'a> {
    let blocks: Arc<dyn Blocks> = blocks.clone();
    Source { name: "digits", manifest, part: Subset::Train, blocks }
}

fn dense(batch: &Batch) -> Vec<f32> {
    let Inputs::Dense(tensor) = &batch.features else { panic!("the features are sparse") };
    tensor.to_vec().unwrap()
}

/// Which samples of a [`Counted`] are in a batch.
fn samples(batch: &Batch) -> Vec<u64> {
    dense(batch).chunks(2).map(|row| row[0] as u64).collect()
}

/// Waits until something holds that another thread brings about.
fn eventually(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "it never came about");
        std::thread::yield_now();
    }
}
