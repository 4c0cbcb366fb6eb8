//! The order of a shard's samples, without a list of them where that can be.

use std::ops::Range;

use super::{Permutation, Position, Shard};

/// From a place in a shard to a sample.
#[derive(Clone, Debug)]
pub enum Order {
    /// All samples of the split are shuffled, and the shard is those from `first` on.
    Permuted { starts: Vec<u64>, first: u64, permutation: Permutation },
    /// These samples of the split.
    Listed { starts: Vec<u64>, samples: Vec<u32> },
    /// Samples are shuffled within each window. `rows` are those of a shard that has not all between the first and the
    /// last of a segment; else it is empty.
    Windows { segments: Vec<Segment>, windows: Vec<Window>, rows: Vec<u32> },
    /// What was left of shards when their number changed, and those shards.
    Rest { parts: Vec<ShardPart>, shards: Vec<Shard> },
}

/// What a shard has of one that there was before.
#[derive(Clone, Debug)]
pub struct ShardPart {
    /// Samples of the shard in parts before this one.
    pub before: u64,
    /// The first of the earlier shard's samples that it has.
    pub first: u64,
    /// Which of those shards.
    pub shard: usize,
}

/// The part that a place is in. Parts have at least one sample each, and the place is within one.
fn part_of(parts: &[ShardPart], place: u64) -> usize {
    parts.partition_point(|part| part.before <= place) - 1
}

/// What a shard has of one block.
#[derive(Clone, Debug)]
pub struct Segment {
    pub block: u32,
    /// Samples of the shard in segments before this one.
    pub before: u64,
    /// Its first row, or where its rows start in the list of them.
    pub first: u64,
}

/// Segments that are held together.
#[derive(Clone, Debug)]
pub struct Window {
    /// Samples of the shard in windows before this one.
    pub before: u64,
    pub segments: Range<usize>,
    pub permutation: Option<Permutation>,
}

/// The block and row of a sample of the split.
pub fn locate(starts: &[u64], sample: u64) -> Position {
    // Block 0 starts at 0, so there is one; an empty block starts where the next one does, which is found first.
    let block = starts.partition_point(|&start| start <= sample).saturating_sub(1);
    let start = starts.get(block).copied().unwrap_or(0);
    Position { block: block as u32, row: (sample - start) as u32 }
}

impl Order {
    /// Where the sample at a place of the shard is. The place is within the shard.
    pub fn position(&self, place: u64) -> Position {
        match self {
            Self::Permuted { starts, first, permutation } => locate(starts, permutation.at(first + place)),
            Self::Listed { starts, samples } => locate(starts, u64::from(samples[place as usize])),
            Self::Windows { segments, windows, rows } => {
                let window = &windows[windows.partition_point(|window| window.before <= place) - 1];
                let within = place - window.before;
                let place = window.before + window.permutation.as_ref().map_or(within, |order| order.at(within));
                let segments = &segments[window.segments.clone()];
                let segment = &segments[segments.partition_point(|segment| segment.before <= place) - 1];
                let at = segment.first + (place - segment.before);
                let row = if rows.is_empty() { at as u32 } else { rows[at as usize] };
                Position { block: segment.block, row }
            }
            Self::Rest { parts, shards } => {
                let part = &parts[part_of(parts, place)];
                shards[part.shard].order.position(part.first + (place - part.before))
            }
        }
    }

    /// Where the window of a place ends; nothing where that is the end of the shard.
    pub fn window_end(&self, place: u64) -> Option<u64> {
        match self {
            Self::Permuted { .. } | Self::Listed { .. } => None,
            Self::Windows { windows, .. } => {
                windows.get(windows.partition_point(|window| window.before <= place)).map(|window| window.before)
            }
            Self::Rest { parts, shards } => {
                let index = part_of(parts, place);
                let (part, next) = (&parts[index], parts.get(index + 1).map(|next| next.before));
                let earlier = &shards[part.shard].order;
                let end = earlier.window_end(part.first + (place - part.before));
                let end = end.map(|end| part.before + (end - part.first));
                // Shards of samples that are shuffled as a whole share all blocks, so there is one window.
                let is_whole = matches!(earlier, Self::Permuted { .. } | Self::Listed { .. });
                if is_whole { None } else { [end, next].into_iter().flatten().min() }
            }
        }
    }
}
