//! A part of another data set's samples, drawn by chance.
//!
//! Every sample is as likely as any other to be among them, and there are exactly as many as were asked for: each one is
//! taken with the probability that the rest of the wanted ones are among the rest of all (Fan, Muller and Rezucha, 1962).
//! So a data set is read once, block by block, whatever its size.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::block;
use super::blocks::{Blocks, read_whole};
use super::manifest::{BlockRef, Manifest, Split};
use super::read::{ReadError, Watch};
use super::rows::{Features, Labels, Rows, Samples};

/// Some of the samples of a split, in its order.
pub struct Sampled {
    features: Features,
    labels: Option<Labels>,
    class_names: Vec<String>,
    blocks: Arc<dyn Blocks>,
    /// Blocks that are not read yet, the next one last.
    waiting: Vec<BlockRef>,
    /// The rows of the block that was read last, and how many of them were looked at.
    rows: Rows,
    seen: usize,
    /// Samples that were not looked at, and those of them that are wanted.
    left: u64,
    wanted: u64,
    random: ChaCha8Rng,
    watch: Watch,
}

impl Sampled {
    /// This part of a split, from 0 to 1, and one sample at least if it has any.
    pub fn new(manifest: &Manifest, split: &Split, blocks: Arc<dyn Blocks>, part: f64, seed: u64) -> Self {
        let wanted = (split.count as f64 * part.clamp(0.0, 1.0)).round() as u64;
        Self {
            features: manifest.features.clone(),
            labels: manifest.labels,
            class_names: manifest.class_names.clone(),
            blocks,
            waiting: split.blocks.iter().rev().cloned().collect(),
            rows: Rows::of(&manifest.features),
            seen: 0,
            left: split.count,
            wanted: wanted.clamp(1.min(split.count), split.count),
            random: ChaCha8Rng::seed_from_u64(seed),
            watch: Watch::default(),
        }
    }

    /// With somebody who is asked before each block whether to go on: there may be many of which no sample is taken.
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch, ..self }
    }

    /// The next block, if there is one.
    fn next_block(&mut self) -> Result<bool, ReadError> {
        let Some(block) = self.waiting.pop() else { return Ok(false) };
        let wrong = |error: &dyn std::fmt::Display| ReadError::Asked(format!("a block cannot be read: {error}"));
        self.watch.may_go_on().map_err(|error| wrong(&error))?;
        let bytes = read_whole(&*self.blocks, &block).map_err(|error| wrong(&error))?;
        self.rows = block::decode(&bytes, &block, &self.features, self.labels).map_err(|error| wrong(&error))?;
        self.seen = 0;
        Ok(true)
    }
}

impl Samples for Sampled {
    fn features(&self) -> &Features {
        &self.features
    }

    fn labels(&self) -> Option<Labels> {
        self.labels
    }

    fn count(&self) -> Option<u64> {
        Some(self.wanted)
    }

    fn class_names(&self) -> Option<&[String]> {
        (!self.class_names.is_empty()).then_some(&self.class_names)
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        if into.count == 0 {
            into.features = Rows::of(&self.features).features;
        }
        let mut taken = 0;
        // What one block has is what is given at once; blocks that have none of them are passed over.
        while taken < most && self.wanted > 0 {
            if self.seen == self.rows.count {
                if taken > 0 || !self.next_block()? {
                    break;
                }
                continue;
            }
            let row = self.seen;
            self.seen += 1;
            let chance = self.random.next_u64() % self.left.max(1) < self.wanted;
            self.left = self.left.saturating_sub(1);
            if chance {
                if !into.extend(&self.rows, row..row + 1) {
                    return Err(ReadError::Asked("rows of another kind cannot take these samples".into()));
                }
                self.wanted -= 1;
                taken += 1;
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io;
    use std::ops::Range;

    use bytes::Bytes;

    use super::*;
    use crate::dataset::synth::{Kind, Synthetic};
    use crate::dataset::{BlockSink, Builder, Options, Sources};
    use crate::digest::Digest;

    #[derive(Default)]
    struct Memory(HashMap<Digest, Bytes>);

    impl BlockSink for Memory {
        fn write(&mut self, bytes: Vec<u8>) -> io::Result<Digest> {
            let digest = Digest::of(&bytes);
            self.0.insert(digest, bytes.into());
            Ok(digest)
        }
    }

    impl Blocks for Memory {
        fn read(&self, block: &BlockRef, range: Range<u64>) -> io::Result<Bytes> {
            self.0.read(block, range)
        }
    }

    fn made(samples: u64) -> (Manifest, Arc<Memory>) {
        let mut memory = Memory::default();
        let train: Vec<Box<dyn Samples>> = vec![Box::new(Synthetic::new(Kind::Higgs, 1, 0..samples))];
        let sources = Sources { train, test: Vec::new() };
        let manifest = Builder::new(Options::default(), &mut memory).build(sources).unwrap();
        (manifest, Arc::new(memory))
    }

    fn draw(manifest: &Manifest, memory: &Arc<Memory>, part: f64, seed: u64, at_once: usize) -> Vec<u8> {
        let mut sampled = Sampled::new(manifest, &manifest.train, memory.clone(), part, seed);
        let mut all = Rows::of(&manifest.features);
        let count = sampled.count().unwrap();
        while sampled.read(at_once, &mut all).unwrap() > 0 {}
        assert_eq!(all.count as u64, count);
        let crate::dataset::Values::Dense(bytes) = all.features else { panic!("they are dense") };
        bytes
    }

    #[test]
    fn exactly_as_many_are_drawn_as_were_asked_for() {
        let (manifest, memory) = made(70_000);
        assert!(manifest.train.blocks.len() > 1, "more than a block");
        let size = manifest.features.sample_bytes().unwrap();
        for (part, count) in [(0.1, 7_000), (1.0, 70_000), (0.0, 1), (1e-9, 1)] {
            assert_eq!(draw(&manifest, &memory, part, 1, 1_000).len(), count * size, "{part}");
        }
        assert_eq!(draw(&manifest, &memory, 0.1, 1, 7), draw(&manifest, &memory, 0.1, 1, 100_000));
        assert_ne!(draw(&manifest, &memory, 0.1, 1, 1_000), draw(&manifest, &memory, 0.1, 2, 1_000));
    }

    #[test]
    fn a_block_that_is_damaged_is_told() {
        let (manifest, _) = made(100);
        let nothing = Arc::new(Memory::default());
        let mut sampled = Sampled::new(&manifest, &manifest.train, nothing, 0.5, 1);
        let error = sampled.read(10, &mut Rows::of(&manifest.features)).unwrap_err();
        assert!(error.to_string().contains("block"), "{error}");
    }
}
