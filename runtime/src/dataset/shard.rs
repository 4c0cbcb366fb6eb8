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
//!
//! The number of shards may change in the middle of an epoch: a [`Cut`] says how many there were and how far each had come.
//! What was left of all of them, one after the other, is then divided anew, so that every sample still comes once.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::manifest::Split;

mod order;
mod permutation;

use order::{Order, Segment, Window};
pub(super) use permutation::{Key, Permutation};

/// Bytes of blocks among which samples are shuffled.
pub const WINDOW_BYTES: u64 = 64 << 20;

/// How a split is divided in one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// How the split was divided earlier in the epoch, the first first.
    pub cuts: Cuts,
}

impl Default for Plan {
    fn default() -> Self {
        let (window, cuts) = (WINDOW_BYTES, Cuts::default());
        Self { seed: 0, epoch: 0, shards: 1, stratified: false, shuffle: true, window, cuts }
    }
}

/// A change of the number of shards in the middle of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// How many there were.
    pub shards: u64,
    /// Samples that were taken from each of them, as far as it had so many.
    pub taken: u64,
}

/// All of an epoch, the first first. Most epochs have none.
pub type Cuts = Arc<[Cut]>;

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
        let range = cut(self.left(split), 0, self.shards, shard);
        Ok(range.end - range.start)
    }

    /// How many samples all shards have together: all of the split, but for those that were taken before a change.
    fn left(&self, split: &Split) -> u64 {
        self.cuts.iter().fold(split.count, |left, Cut { shards, taken }| {
            let shards = (*shards).max(1);
            let (each, more) = (left / shards, left % shards);
            more * (each + 1).saturating_sub(*taken) + (shards - more) * each.saturating_sub(*taken)
        })
    }

    /// One shard. `labels` gives the classes of a block's samples; it is only called for a stratified plan, once a block.
    pub fn shard<E: From<ShardError>>(
        &self,
        split: &Split,
        shard: u64,
        mut labels: impl FnMut(usize) -> Result<Vec<i32>, E>,
    ) -> Result<Shard, E> {
        self.shard_with(split, shard, &mut labels)
    }

    fn shard_with<E: From<ShardError>>(
        &self,
        split: &Split,
        shard: u64,
        labels: &mut dyn FnMut(usize) -> Result<Vec<i32>, E>,
    ) -> Result<Shard, E> {
        let count = self.count(split, shard)?;
        if let Some(first) = self.cuts.first() {
            return self.rest(split, shard, first.shards, labels);
        }
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

    /// A shard of what was left after all changes of this epoch, made of the shards that it began with.
    fn rest<E: From<ShardError>>(
        &self,
        split: &Split,
        shard: u64,
        first_shards: u64,
        labels: &mut dyn FnMut(usize) -> Result<Vec<i32>, E>,
    ) -> Result<Shard, E> {
        let first = Self { shards: first_shards, cuts: Cuts::default(), ..self.clone() };
        let pieces = self.pieces(split).into_iter().nth(shard as usize).unwrap_or_default();
        let (mut parts, mut shards, mut count) = (Vec::new(), Vec::<(u64, Shard)>::new(), 0);
        for Piece { of, range } in pieces {
            let index = match shards.iter().position(|(number, _)| *number == of) {
                Some(index) => index,
                None => {
                    shards.push((of, first.shard_with(split, of, labels)?));
                    shards.len() - 1
                }
            };
            parts.push(order::ShardPart { before: count, first: range.start, shard: index });
            count += range.end - range.start;
        }
        let shards = shards.into_iter().map(|(_, shard)| shard).collect();
        Ok(Shard { count, order: Order::Rest { parts, shards } })
    }

    /// Which parts of the shards that the epoch began with each shard has by now.
    fn pieces(&self, split: &Split) -> Vec<Vec<Piece>> {
        let first = self.cuts.first().map_or(self.shards, |cut| cut.shards).max(1);
        let whole = |of: u64| {
            let range = cut(split.count, 0, first, of);
            vec![Piece { of, range: 0..range.end - range.start }]
        };
        let mut now: Vec<Vec<Piece>> = (0..first).map(whole).collect();
        for (index, Cut { taken, .. }) in self.cuts.iter().enumerate() {
            let shards = self.cuts.get(index + 1).map_or(self.shards, |next| next.shards).max(1);
            let left: Vec<Piece> = now.into_iter().flat_map(|pieces| without(pieces, *taken)).collect();
            now = divided(left, shards);
        }
        now
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
        // At the end of an epoch there may be fewer samples left than shards: some of them have none.
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

/// Some samples of a shard that an epoch began with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    of: u64,
    range: Range<u64>,
}

/// What is left of pieces, one after the other, without the first so many samples.
fn without(pieces: Vec<Piece>, mut taken: u64) -> Vec<Piece> {
    let mut left = Vec::new();
    for Piece { of, range } in pieces {
        let start = range.start + taken.min(range.end - range.start);
        taken -= start - range.start;
        if start < range.end {
            left.push(Piece { of, range: start..range.end });
        }
    }
    left
}

/// Pieces, one after the other, divided among so many shards.
fn divided(pieces: Vec<Piece>, shards: u64) -> Vec<Vec<Piece>> {
    let total = pieces.iter().map(|piece| piece.range.end - piece.range.start).sum();
    let mut pieces = pieces.into_iter();
    let mut next = pieces.next();
    let share = |shard: u64| {
        let range = cut(total, 0, shards, shard);
        let (mut missing, mut mine) = (range.end - range.start, Vec::new());
        while missing > 0 {
            let Some(Piece { of, range }) = next.take() else { break };
            let end = range.end.min(range.start + missing);
            missing -= end - range.start;
            mine.push(Piece { of, range: range.start..end });
            next = if end < range.end { Some(Piece { of, range: end..range.end }) } else { pieces.next() };
        }
        mine
    };
    (0..shards).map(share).collect()
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
