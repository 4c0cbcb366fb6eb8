//! The order of a shard's samples, without a list of them where that can be.

use std::ops::Range;

use super::{Permutation, Position};

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
        }
    }

    /// Where the window of a place ends; nothing where that is the end of the shard.
    pub fn window_end(&self, place: u64) -> Option<u64> {
        let Self::Windows { windows, .. } = self else { return None };
        windows.get(windows.partition_point(|window| window.before <= place)).map(|window| window.before)
    }
}
