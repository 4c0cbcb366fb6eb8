//! How rows lie in a block.
//!
//! Labels first (`count` of them), then features. Dense: sample after sample. Sparse: `starts` (`count + 1` u32),
//! `columns` (u32), `values` (f32). Everything is little-endian and nothing is padded, so a [`BlockRef`] alone says where
//! each sample lies, and a worker can ask for a range. What a block holds is never trusted.

use std::ops::Range;

use super::manifest::BlockRef;
use super::rows::{Features, Labels, Rows, Values};

/// A block is written when its features are about this large.
pub const TARGET_BYTES: usize = 2 << 20;
/// No block has more samples, however small they are.
pub const MOST_SAMPLES: usize = 65_536;
/// A block has one sample at least, so this bounds a block too.
pub const MOST_SAMPLE_BYTES: usize = 64 << 20;

/// A block, or rows that should become one, that does not hold what is said of it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BlockError {
    #[error("{count} samples cannot lie in a block of {bytes} bytes")]
    Size { count: u64, bytes: u64 },
    #[error("the block should have {expected} bytes and has {found}")]
    Length { expected: u64, found: u64 },
    #[error("features of sample {sample} end before they start, or after the last number")]
    Starts { sample: usize },
    #[error("sample {sample} has column {column} of {columns}")]
    Column { sample: usize, column: u32, columns: u32 },
    #[error("columns of sample {sample} are not ascending")]
    Order { sample: usize },
    #[error("sample {sample} has the class {label}")]
    Class { sample: usize, label: i32 },
    #[error("{count} samples came with {labels} bytes of labels and {features} of features")]
    Rows { count: usize, labels: usize, features: usize },
}

/// Where the parts of a block lie in it, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub labels: Range<u64>,
    pub features: Body,
}

/// Where features lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Each sample takes `size`.
    Dense {
        all: Range<u64>,
        size: u64,
    },
    Sparse {
        starts: Range<u64>,
        columns: Range<u64>,
        values: Range<u64>,
    },
}

impl BlockRef {
    /// Where things lie in this block, if samples like these can lie in it at all.
    pub fn layout(&self, features: &Features, labels: Option<Labels>) -> Result<Layout, BlockError> {
        let wrong = || BlockError::Size { count: self.count.into(), bytes: self.bytes };
        let count = u64::from(self.count);
        let labels_end = count.checked_mul(labels.map_or(0, Labels::size) as u64).ok_or_else(wrong)?;
        let rest = self.bytes.checked_sub(labels_end).ok_or_else(wrong)?;
        let features = match features.sample_bytes() {
            Some(size) => {
                let size = size as u64;
                if count.checked_mul(size) != Some(rest) {
                    return Err(wrong());
                }
                Body::Dense { all: labels_end..self.bytes, size }
            }
            None => {
                let starts = 4 * (count + 1);
                let numbers = rest.checked_sub(starts).filter(|bytes| bytes % 8 == 0).ok_or_else(wrong)?;
                let (columns, values) = (labels_end + starts, labels_end + starts + numbers / 2);
                Body::Sparse { starts: labels_end..columns, columns: columns..values, values: values..self.bytes }
            }
        };
        Ok(Layout { labels: 0..labels_end, features })
    }
}

/// The bytes of a block with these samples.
pub fn encode(rows: &Rows, features: &Features, labels: Option<Labels>) -> Result<Vec<u8>, BlockError> {
    let wrong = |features| BlockError::Rows { count: rows.count, labels: rows.labels.len(), features };
    let expected_labels = rows.count.checked_mul(labels.map_or(0, Labels::size));
    let labels_fit = expected_labels == Some(rows.labels.len()) && rows.count <= u32::MAX as usize;
    match (&rows.features, features) {
        (Values::Dense(bytes), Features::Dense { .. }) => {
            let expected = features.sample_bytes().and_then(|size| size.checked_mul(rows.count));
            if !labels_fit || expected != Some(bytes.len()) {
                return Err(wrong(bytes.len()));
            }
            Ok([rows.labels.as_slice(), bytes].concat())
        }
        (Values::Sparse { starts, columns, values }, Features::Sparse { columns: width }) => {
            if !labels_fit || starts.len() != rows.count + 1 || columns.len() != values.len() {
                return Err(wrong(4 * (starts.len() + columns.len() + values.len())));
            }
            check_sparse(starts, columns, *width)?;
            let mut block = Vec::with_capacity(rows.labels.len() + 4 * (starts.len() + columns.len() + values.len()));
            block.extend_from_slice(&rows.labels);
            starts.iter().chain(columns).for_each(|number| block.extend_from_slice(&number.to_le_bytes()));
            values.iter().for_each(|value| block.extend_from_slice(&value.to_le_bytes()));
            Ok(block)
        }
        (Values::Dense(bytes), Features::Sparse { .. }) => Err(wrong(bytes.len())),
        (Values::Sparse { values, .. }, Features::Dense { .. }) => Err(wrong(4 * values.len())),
    }
}

/// The samples of a block.
pub fn decode(bytes: &[u8], block: &BlockRef, features: &Features, labels: Option<Labels>) -> Result<Rows, BlockError> {
    if bytes.len() as u64 != block.bytes {
        return Err(BlockError::Length { expected: block.bytes, found: bytes.len() as u64 });
    }
    let layout = block.layout(features, labels)?;
    // The layout ends where the bytes do, so every range lies inside them.
    let part = |range: &Range<u64>| &bytes[range.start as usize..range.end as usize];
    let label_bytes = part(&layout.labels);
    if labels == Some(Labels::Class)
        && let Some((sample, label)) =
            numbers(label_bytes, i32::from_le_bytes).enumerate().find(|(_, label)| *label < 0)
    {
        return Err(BlockError::Class { sample, label });
    }
    let values = match (&layout.features, features) {
        (Body::Sparse { starts, columns, values }, Features::Sparse { columns: width }) => {
            let starts: Vec<_> = numbers(part(starts), u32::from_le_bytes).collect();
            let columns: Vec<_> = numbers(part(columns), u32::from_le_bytes).collect();
            check_sparse(&starts, &columns, *width)?;
            Values::Sparse { starts, columns, values: numbers(part(values), f32::from_le_bytes).collect() }
        }
        (Body::Dense { all, .. } | Body::Sparse { values: all, .. }, _) => Values::Dense(part(all).to_vec()),
    };
    Ok(Rows { count: block.count as usize, features: values, labels: label_bytes.to_vec() })
}

/// Little-endian numbers of four bytes.
pub(super) fn numbers<T>(bytes: &[u8], decode: fn([u8; 4]) -> T) -> impl Iterator<Item = T> {
    bytes.as_chunks().0.iter().map(move |bytes| decode(*bytes))
}

/// Starts must climb from nothing to all, columns must climb within each sample.
fn check_sparse(starts: &[u32], columns: &[u32], width: u32) -> Result<(), BlockError> {
    if starts.first() != Some(&0) {
        return Err(BlockError::Starts { sample: 0 });
    }
    for (sample, ends) in starts.windows(2).enumerate() {
        let of_sample = columns.get(ends[0] as usize..ends[1] as usize).ok_or(BlockError::Starts { sample })?;
        if !of_sample.is_sorted_by(|one, next| one < next) {
            return Err(BlockError::Order { sample });
        }
        if let Some(&column) = of_sample.last().filter(|column| **column >= width) {
            return Err(BlockError::Column { sample, column, columns: width });
        }
    }
    match starts.last() {
        Some(last) if *last as usize == columns.len() => Ok(()),
        _ => Err(BlockError::Starts { sample: starts.len().saturating_sub(2) }),
    }
}

#[cfg(test)]
mod tests;
