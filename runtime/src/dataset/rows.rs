//! Rows: some samples on their way from a file to a block, or from a block to a batch.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::read::ReadError;

/// The type in which numbers are kept. Files may hold others; they are converted when they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    U8,
    I32,
    F32,
}

impl Element {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::I32 | Self::F32 => 4,
        }
    }
}

/// What the features of every sample of a data set are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Features {
    /// `shape` of one sample, which may be empty: one number.
    Dense { element: Element, shape: Vec<usize> },
    /// Rows of a CSR matrix of f32 with so many columns.
    Sparse { columns: u32 },
}

impl Features {
    /// Numbers of one sample, the zeros of a sparse one too. Saturates where no sample could be so wide.
    pub fn width(&self) -> usize {
        match self {
            Self::Dense { shape, .. } => shape.iter().fold(1, |width: usize, size| width.saturating_mul(*size)),
            Self::Sparse { columns } => *columns as usize,
        }
    }

    /// Bytes of one dense sample in [`Values::Dense`]; none where that differs from sample to sample.
    pub fn sample_bytes(&self) -> Option<usize> {
        match self {
            Self::Dense { element, .. } => Some(self.width().saturating_mul(element.size())),
            Self::Sparse { .. } => None,
        }
    }
}

/// What the label of every sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Labels {
    /// One of the classes 0, 1, 2 …, kept as an i32.
    Class,
    /// So many f32.
    Values { width: u32 },
}

impl Labels {
    /// Bytes of one sample's label.
    pub fn size(self) -> usize {
        match self {
            Self::Class => 4,
            Self::Values { width } => 4 * width as usize,
        }
    }
}

/// Some samples: what they are is told by a [`Features`] and a [`Labels`] beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    pub count: usize,
    pub features: Values,
    /// Little-endian; empty where samples have no label.
    pub labels: Vec<u8>,
}

/// The features of some samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Sample after sample, little-endian.
    Dense(Vec<u8>),
    /// Sample `i` has `columns[starts[i]..starts[i + 1]]`, ascending, and the values beside them; `starts` has one entry
    /// more than there are samples.
    Sparse { starts: Vec<u32>, columns: Vec<u32>, values: Vec<f32> },
}

impl Rows {
    /// No samples yet, of such features.
    pub fn of(features: &Features) -> Self {
        let features = match features {
            Features::Dense { .. } => Values::Dense(Vec::new()),
            Features::Sparse { .. } => Values::Sparse { starts: vec![0], columns: Vec::new(), values: Vec::new() },
        };
        Self { count: 0, features, labels: Vec::new() }
    }

    /// No samples any more; the memory is kept.
    pub fn clear(&mut self) {
        self.count = 0;
        self.labels.clear();
        match &mut self.features {
            Values::Dense(bytes) => bytes.clear(),
            Values::Sparse { starts, columns, values } => {
                starts.clear();
                starts.push(0);
                columns.clear();
                values.clear();
            }
        }
    }

    /// Adds some samples of others. False, and nothing added, where they are not alike or `range` is not among them.
    #[must_use]
    pub fn extend(&mut self, others: &Self, range: Range<usize>) -> bool {
        if range.is_empty() || range.end > others.count {
            return range.is_empty() && range.end <= others.count;
        }
        let label = others.labels.len() / others.count;
        let Some(labels) = others.labels.get(range.start * label..range.end * label) else { return false };
        let added = match (&mut self.features, &others.features) {
            (Values::Dense(to), Values::Dense(from)) => {
                let size = from.len() / others.count;
                from.get(range.start * size..range.end * size).map(|bytes| to.extend_from_slice(bytes))
            }
            (
                Values::Sparse { starts, columns, values },
                Values::Sparse { starts: from, columns: from_columns, values: from_values },
            ) => extend_sparse((starts, columns, values), (from, from_columns, from_values), range.clone()),
            _ => None,
        };
        if added.is_some() {
            self.labels.extend_from_slice(labels);
            self.count += range.len();
        }
        added.is_some()
    }
}

/// Adds rows of one CSR matrix to another; nothing where the matrices are not in order or become too large.
fn extend_sparse(
    (starts, columns, values): (&mut Vec<u32>, &mut Vec<u32>, &mut Vec<f32>),
    (from, from_columns, from_values): (&[u32], &[u32], &[f32]),
    range: Range<usize>,
) -> Option<()> {
    let ends = from.get(range.start..=range.end)?;
    let (first, last) = (*ends.first()?, *ends.last()?);
    if !ends.is_sorted() {
        return None;
    }
    let base = *starts.last()?;
    base.checked_add(last - first)?;
    let numbers = first as usize..last as usize;
    let (new_columns, new_values) = (from_columns.get(numbers.clone())?, from_values.get(numbers)?);
    starts.extend(ends.iter().skip(1).map(|end| base + (end - first)));
    columns.extend_from_slice(new_columns);
    values.extend_from_slice(new_values);
    Some(())
}

impl Default for Values {
    fn default() -> Self {
        Self::Dense(Vec::new())
    }
}

/// Samples that come from somewhere, one after the other.
pub trait Samples: Send {
    fn features(&self) -> &Features;

    /// None where samples have no labels.
    fn labels(&self) -> Option<Labels>;

    /// How many there are in all, where that is known before they are read.
    fn count(&self) -> Option<u64>;

    /// The names of the classes 0, 1, 2 … that were met so far. More may follow; those told stay as they are.
    fn class_names(&self) -> Option<&[String]> {
        None
    }

    /// The lowest index of a libsvm file.
    fn index_base(&self) -> Option<u32> {
        None
    }

    /// Adds up to `most` more samples to `into`, a few megabytes of them at most, and says how many: none only at the end,
    /// once everything has been checked, or if `most` is 0. `into` must be empty or have samples of the same kind; after
    /// an error it has what it had before.
    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError>;
}
