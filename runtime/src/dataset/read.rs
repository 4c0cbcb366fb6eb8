//! Files of many formats become [`Rows`].
//!
//! Files are hostile until read: nothing is allocated because a header says so, what is compressed may expand only so
//! far ([`Limits`]), and an error says the file and the line or the byte. Memory does not depend on the size of a file.
//!
//! - `source`, `gzip`, `zip`, `text`, `table`: bytes, lines and cells
//! - `array`, `arrays`, `names`, `labels`: what the formats that hold arrays share
//! - `idx`, `npy`, `npz`, `csv`, `libsvm`, `cifar`, `safetensors`: one format each
//!
//! Features of 8 bits stay as they are; all other numbers become f32, the nearest that there is.

mod array;
mod arrays;
mod cifar;
mod csv;
mod error;
mod format;
mod gzip;
mod idx;
mod labels;
mod libsvm;
mod names;
mod npy;
mod npz;
mod pair;
mod safetensors;
mod source;
mod table;
mod text;
mod zip;

use std::path::PathBuf;

pub use error::{Place, ReadError};
pub use format::Format;
pub use labels::{LabelKind, MAX_CLASS};
pub use names::{ArrayNames, Half};
pub use source::{Limits, Source, Watch};

use super::rows::{Features, Labels, Rows, Samples, Values};
use source::Opened;

/// Bytes of samples that are read at once, if a single one is not more.
const BYTES_AT_ONCE: usize = 2 << 20;

/// How files are to be understood. The default finds out what it can.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Of all files; otherwise guessed for each from its name and its first bytes.
    pub format: Option<Format>,
    pub labels: LabelKind,
    /// The names of all classes, where they are known: of a test file, those of the training file. Labels are then names.
    pub classes: Option<Vec<String>>,
    /// Which column of a table is the label. Not asked if labels are in a file of their own.
    pub label_column: LabelColumn,
    pub header: Header,
    /// Between the cells of a table; otherwise guessed from its first row.
    pub delimiter: Option<u8>,
    /// Which arrays of an npz or safetensors file.
    pub arrays: ArrayNames,
    /// Columns of a libsvm file; otherwise the highest index.
    pub columns: Option<u32>,
    /// The lowest index of a libsvm file, 0 or 1; otherwise 0 if there is any. Of a test file, that of the training file.
    pub index_base: Option<u32>,
    /// Where files are expanded that cannot be read while they expand; otherwise where the system keeps such.
    pub spool_in: Option<PathBuf>,
    pub limits: Limits,
    /// Who is asked whether to go on.
    pub watch: Watch,
}

/// Which column of a table is the label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LabelColumn {
    #[default]
    Last,
    /// The first is 0.
    Index(usize),
    /// By the header.
    Name(String),
    /// There are no labels.
    None,
}

/// Whether the first row of a table names its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// If none of its features is a number.
    #[default]
    Auto,
    Yes,
    No,
}

/// Opens a file of samples, or one of features and one of their labels.
pub fn open(features: &Source, labels: Option<&Source>, options: &Options) -> Result<Box<dyn Samples>, ReadError> {
    let file = Opened::new(features, options)?;
    let samples = match labels {
        None => format::open(file, options, true)?,
        Some(labels) => {
            let labels = Opened::new(labels, options)?;
            pair::open(file, labels, options)?
        }
    };
    Ok(Box::new(Guarded { samples, name: features.name.clone(), failed: false, read: 0 }))
}

/// Keeps what every reader promises: no more at once than fits in little memory, no half of a sample after an error, and
/// as many samples as were counted.
struct Guarded {
    samples: Box<dyn Samples>,
    name: String,
    failed: bool,
    read: u64,
}

impl Samples for Guarded {
    fn features(&self) -> &Features {
        self.samples.features()
    }

    fn labels(&self) -> Option<Labels> {
        self.samples.labels()
    }

    fn count(&self) -> Option<u64> {
        self.samples.count()
    }

    fn class_names(&self) -> Option<&[String]> {
        self.samples.class_names()
    }

    fn index_base(&self) -> Option<u32> {
        self.samples.index_base()
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        if self.failed {
            return Err(ReadError::Asked("an earlier read of these samples failed".into()));
        }
        if most == 0 {
            return Ok(0);
        }
        if into.count == 0 {
            into.features = match self.features() {
                Features::Dense { .. } => Values::Dense(Vec::new()),
                Features::Sparse { .. } => Values::Sparse { starts: vec![0], columns: Vec::new(), values: Vec::new() },
            };
            into.labels.clear();
        }
        let before = Lengths::of(into);
        let result = self.samples.read(most.min(self.rows_at_once()), into);
        let result = result.and_then(|count| {
            self.read += count as u64;
            match self.count() {
                Some(expected) if self.read > expected || (count == 0 && self.read < expected) => {
                    Err(ReadError::content(&self.name, Place::Whole, labels::CHANGED))
                }
                _ => Ok(count),
            }
        });
        match result {
            Ok(count) => into.count += count,
            Err(_) => {
                self.failed = true;
                before.restore(into);
            }
        }
        result
    }
}

impl Guarded {
    /// How many samples are read at once. Sparse ones have a limit of their own.
    fn rows_at_once(&self) -> usize {
        let features = match self.features() {
            Features::Dense { element, .. } => self.features().width() * element.size(),
            Features::Sparse { .. } => size_of::<u32>(),
        };
        let labels = self.labels().map_or(0, Labels::size);
        (BYTES_AT_ONCE / (features + labels).max(1)).max(1)
    }
}

/// How much rows had.
struct Lengths {
    labels: usize,
    features: usize,
    starts: usize,
}

impl Lengths {
    fn of(rows: &Rows) -> Self {
        let (features, starts) = match &rows.features {
            Values::Dense(bytes) => (bytes.len(), 0),
            Values::Sparse { starts, columns, .. } => (columns.len(), starts.len()),
        };
        Self { labels: rows.labels.len(), features, starts }
    }

    fn restore(self, rows: &mut Rows) {
        rows.labels.truncate(self.labels);
        match &mut rows.features {
            Values::Dense(bytes) => bytes.truncate(self.features),
            Values::Sparse { starts, columns, values } => {
                starts.truncate(self.starts);
                columns.truncate(self.features);
                values.truncate(self.features);
            }
        }
    }
}

fn mixed() -> ReadError {
    ReadError::Asked("dense and sparse samples cannot be put together".into())
}
