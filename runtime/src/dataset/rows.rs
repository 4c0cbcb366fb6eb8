//! Rows: some samples on their way from a file to a block, or from a block to a batch.

use serde::{Deserialize, Serialize};

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
    /// Numbers of one sample, the zeros of a sparse one too.
    pub fn width(&self) -> usize {
        match self {
            Self::Dense { shape, .. } => shape.iter().product(),
            Self::Sparse { columns } => *columns as usize,
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

impl Default for Values {
    fn default() -> Self {
        Self::Dense(Vec::new())
    }
}
