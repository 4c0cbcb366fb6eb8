//! Which samples belong to which worker, in which order. Pure: a [`Plan`] and a [`Split`] in, [`Position`]s out.
//!
//! The assignment is a function of the split (so of the data set's version), the seed, the epoch and the number of shards,
//! and of nothing else: it is the same after a restart and on every machine, and no data moves for it. Shards differ by at
//! most one sample; stratified ones by at most one of each class too.
//!
//! A split that fits into a window is shuffled sample by sample. For a larger one that would make every worker read
//! everything, so there blocks are shuffled, cut into contiguous shards (a block at an edge belongs to two), and samples
//! are shuffled within windows of whole blocks: each block is read once, and a window is what is held at a time.
//! A stratified cut is made class by class along the same walk, so its shards stay as contiguous as the classes allow.

use std::ops::Range;

use super::manifest::Split;

mod order;
mod permutation;

use order::{Order, Segment, Window};
use permutation::{Key, Permutation};

/// Bytes of blocks among which samples are shuffled.
pub const WINDOW_BYTES: u64 = 64 << 20;

/// How a split is divided in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub epoch: u64,
    pub shards: u64,
    /// Whether each class is divided evenly too. Needs labels that are classes.
    pub stratified: bool,
    /// Otherwise samples come in the order of the data set.
    pub shuffle: bool,
    /// [`WINDOW_BYTES`], unless less may be held; part of what decides the order.
    pub window: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 0, epoch: 0, shards: 1, stratified: false, shuffle: true, window: WINDOW_BYTES }
    }
}

/// Where a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Which of the split's blocks.
    pub block: u32,
    pub row: u32,
}

/// A split that cannot be divided as asked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShardError {
    #[error("there must be at least one shard")]
    NoShards,
    #[error("{shards} shards of {samples} samples: some would be empty; use at most {samples}")]
    TooManyShards { shards: u64, samples: u64 },
    #[error("there is no shard {shard}, there are {shards}, counted from 0")]
    NoSuchShard { shard: u64, shards: u64 },
    #[error("shards cannot be stratified: the labels are no classes")]
    NoClasses,
    #[error("a split has {blocks} blocks, more than can be numbered")]
    TooManyBlocks { blocks: usize },
    #[error("the manifest is wrong: its split has {counted} samples in {what}, and says {said}")]
    WrongCount { what: &'static str, counted: u64, said: u64 },
    #[error("block {block} is damaged: it has {found} labels for {count} samples")]
    WrongLabels { block: usize, found: usize, count: u32 },
    #[error("block {block} is damaged: sample {row} has class {class}, of which the manifest counts {counted}")]
    WrongClass { block: usize, row: usize, class: i32, counted: u64 },
}

impl Plan {
    /// How many samples a shard has.
    pub fn count(&self, split: &Split, shard: u64) -> Result<u64, ShardError> {
        self.check(split, shard)?;
        let range = cut(split.count, 0, self.shards, shard);
        Ok(range.end - range.start)
    }

    /// One shard. `labels` gives the classes of a block's samples; it is only called for a stratified plan, once a block.
    pub fn shard<E: From<ShardError>>(
        &self,
        split: &Split,
        shard: u64,
        labels: impl FnMut(usize) -> Result<Vec<i32>, E>,
    ) -> Result<Shard, E> {
        let count = self.count(split, shard)?;
        let bytes = split.blocks.iter().fold(0_u64, |sum, block| sum.saturating_add(block.bytes));
        let whole = self.shuffle && bytes <= self.window && u32::try_from(split.count).is_ok();
        let order = match (whole, self.stratified) {
            (true, false) => {
                let first = cut(split.count, 0, self.shards, shard).start;
                Order::Permuted { starts: starts(split), first, permutation: self.of_samples(split) }
            }
            (true, true) => {
                let samples = self.pick_samples(split, shard, labels)?;
                Order::Listed { starts: starts(split), samples }
            }
            (false, false) => self.windows(split, shard, self.cut_blocks(split, shard), Vec::new()),
            (false, true) => {
                let (segments, rows) = self.pick_rows(split, shard, labels)?;
                self.windows(split, shard, segments, rows)
            }
        };
        Ok(Shard { count, order })
    }

    fn check(&self, split: &Split, shard: u64) -> Result<(), ShardError> {
        let (shards, samples) = (self.shards, split.count);
        if u32::try_from(split.blocks.len()).is_err() {
            return Err(ShardError::TooManyBlocks { blocks: split.blocks.len() });
        }
        // At most 2^32 blocks of less than 2^32 samples: the sum fits.
        let counted = split.blocks.iter().map(|block| u64::from(block.count)).sum();
        if counted != samples {
            return Err(ShardError::WrongCount { what: "its blocks", counted, said: samples });
        }
        if shards == 0 {
            return Err(ShardError::NoShards);
        }
        if shards > samples {
            return Err(ShardError::TooManyShards { shards, samples });
        }
        if shard >= shards {
            return Err(ShardError::NoSuchShard { shard, shards });
        }
        if self.stratified {
            if split.classes.is_empty() {
                return Err(ShardError::NoClasses);
            }
            let counted = split.classes.iter().fold(0_u64, |sum, &count| sum.saturating_add(count));
            if counted != samples {
                return Err(ShardError::WrongCount { what: "its classes", counted, said: samples });
            }
        }
        Ok(())
    }

    fn key(&self) -> Key {
        Key::new(self.seed).part(self.epoch)
    }

    fn of_samples(&self, split: &Split) -> Permutation {
        Permutation::new(split.count, self.key().part(0))
    }

    /// The blocks in the order in which they are dealt to shards.
    fn walk(&self, split: &Split) -> impl Iterator<Item = usize> + use<> {
        let count = split.blocks.len();
        let permutation = self.shuffle.then(|| Permutation::new(count as u64, self.key().part(1)));
        (0..count).map(move |place| permutation.as_ref().map_or(place, |order| order.at(place as u64) as usize))
    }

    /// The rows of a shard, block by block, when the walk is simply cut.
    fn cut_blocks(&self, split: &Split, shard: u64) -> Vec<Segment> {
        let wanted = cut(split.count, 0, self.shards, shard);
        let mut segments = Vec::new();
        let mut at = 0;
        for block in self.walk(split) {
            let end = at + u64::from(split.blocks[block].count);
            let (from, to) = (wanted.start.max(at), wanted.end.min(end));
            if from < to {
                segments.push(Segment { block: block as u32, before: from - wanted.start, first: from - at });
            }
            at = end;
        }
        segments
    }

    /// The rows of a stratified shard, block by block: of each class a part of the walk.
    fn pick_rows<E: From<ShardError>>(
        &self,
        split: &Split,
        shard: u64,
        mut labels: impl FnMut(usize) -> Result<Vec<i32>, E>,
    ) -> Result<(Vec<Segment>, Vec<u32>), E> {
        let mut classes = Classes::new(split, self.shards, shard);
        let (mut segments, mut rows) = (Vec::new(), Vec::new());
        for block in self.walk(split) {
            let before = rows.len() as u64;
            for (row, class) in checked(split, block, labels(block)?)?.into_iter().enumerate() {
                if classes.take(block, row, class)? {
                    rows.push(row as u32);
                }
            }
            if rows.len() as u64 > before {
                segments.push(Segment { block: block as u32, before, first: before });
            }
        }
        Ok((segments, rows))
    }

    /// The samples of a stratified shard of a split that fits into a window, in their order.
    fn pick_samples<E: From<ShardError>>(
        &self,
        split: &Split,
        shard: u64,
        mut labels: impl FnMut(usize) -> Result<Vec<i32>, E>,
    ) -> Result<Vec<u32>, E> {
        let mut known = Vec::new();
        for block in 0..split.blocks.len() {
            known.extend(checked(split, block, labels(block)?)?);
        }
        let mut classes = Classes::new(split, self.shards, shard);
        let (permutation, starts) = (self.of_samples(split), starts(split));
        let mut samples = Vec::new();
        for place in 0..split.count {
            let sample = permutation.at(place);
            let position = order::locate(&starts, sample);
            if classes.take(position.block as usize, position.row as usize, known[sample as usize])? {
                samples.push(sample as u32);
            }
        }
        Ok(samples)
    }

    /// Groups blocks into windows.
    fn windows(&self, split: &Split, shard: u64, segments: Vec<Segment>, rows: Vec<u32>) -> Order {
        let shard_key = self.key().part(2).part(shard);
        let count = cut(split.count, 0, self.shards, shard);
        let count = count.end - count.start;
        let mut windows: Vec<Window> = Vec::new();
        let mut start = 0;
        while start < segments.len() {
            let mut bytes = split.blocks[segments[start].block as usize].bytes;
            let mut end = start + 1;
            while self.shuffle && end < segments.len() {
                bytes = bytes.saturating_add(split.blocks[segments[end].block as usize].bytes);
                if bytes > self.window {
                    break;
                }
                end += 1;
            }
            let before = segments[start].before;
            let samples = segments.get(end).map_or(count, |next| next.before) - before;
            let key = shard_key.part(windows.len() as u64);
            let permutation = self.shuffle.then(|| Permutation::new(samples, key));
            windows.push(Window { before, segments: start..end, permutation });
            start = end;
        }
        Order::Windows { segments, windows, rows }
    }
}

/// The part of `total` that goes to one of the shards, which differ by at most one. Shards that have one more start with
/// `from`, and go on from the first after the last.
fn cut(total: u64, from: u64, shards: u64, shard: u64) -> Range<u64> {
    let (each, more) = (total / shards, total % shards);
    let before = |shard: u64| {
        let end = from + more;
        each * shard + shard.min(end).saturating_sub(from) + shard.min(end.saturating_sub(shards))
    };
    before(shard)..before(shard + 1)
}

/// How many samples come before each block.
fn starts(split: &Split) -> Vec<u64> {
    let sum = |before: &mut u64, block: &super::BlockRef| {
        let start = *before;
        *before += u64::from(block.count);
        Some(start)
    };
    split.blocks.iter().scan(0, sum).collect()
}

fn checked(split: &Split, block: usize, labels: Vec<i32>) -> Result<Vec<i32>, ShardError> {
    let (found, count) = (labels.len(), split.blocks[block].count);
    if found != count as usize {
        return Err(ShardError::WrongLabels { block, found, count });
    }
    Ok(labels)
}

/// Which samples of each class a shard takes, while all are walked.
struct Classes {
    /// What is the shard's, in the order of the walk.
    wanted: Vec<Range<u64>>,
    seen: Vec<u64>,
    counts: Vec<u64>,
}

impl Classes {
    fn new(split: &Split, shards: u64, shard: u64) -> Self {
        // A class gives its extra samples to the shards after those of the class before: so shards are balanced as a whole.
        let mut from = 0;
        let mut next = |&count: &u64| {
            let wanted = cut(count, from, shards, shard);
            from = (from + count % shards) % shards;
            wanted
        };
        let wanted = split.classes.iter().map(&mut next).collect();
        Self { wanted, seen: vec![0; split.classes.len()], counts: split.classes.clone() }
    }

    fn take(&mut self, block: usize, row: usize, class: i32) -> Result<bool, ShardError> {
        let index = usize::try_from(class).unwrap_or(usize::MAX);
        let counted = self.counts.get(index).copied().unwrap_or(0);
        match self.seen.get_mut(index) {
            Some(seen) if *seen < counted => {
                *seen += 1;
                Ok(self.wanted[index].contains(&(*seen - 1)))
            }
            _ => Err(ShardError::WrongClass { block, row, class, counted }),
        }
    }
}

/// The samples of one shard in their order. Finding any of them is cheap.
#[derive(Clone, Debug)]
pub struct Shard {
    count: u64,
    order: Order,
}

impl Shard {
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where a sample of the shard is, counted in its order.
    pub fn position(&self, sample: u64) -> Option<Position> {
        (sample < self.count).then(|| self.order.position(sample))
    }

    /// Where the window of this sample ends: no sample from there on shares a block with any before.
    pub fn window_end(&self, sample: u64) -> u64 {
        self.order.window_end(sample).unwrap_or(self.count)
    }

    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        (0..self.count).map(|sample| self.order.position(sample))
    }
}

/// What becomes of samples that do not fill a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// The last batch is smaller.
    #[default]
    Keep,
    Drop,
}

impl Last {
    /// How many batches of `size` so many samples make.
    pub fn batches(self, samples: u64, size: std::num::NonZeroU32) -> u64 {
        let size = u64::from(size.get());
        match self {
            Self::Keep => samples.div_ceil(size),
            Self::Drop => samples / size,
        }
    }
}

#[cfg(test)]
mod tests;
