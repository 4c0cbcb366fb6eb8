//! Features in one file, their labels in another, each in its own format.

use super::arrays::counts_agree;
use super::csv::Csv;
use super::error::{Place, ReadError};
use super::format::{self, Format};
use super::labels::LabelArray;
use super::names::Role;
use super::npz::Npz;
use super::safetensors::SafeTensors;
use super::source::Opened;
use super::{LabelColumn, Options, Samples, idx, npy};
use crate::dataset::rows::{Features, Labels, Rows, Values};

/// Labels from a file of their own.
enum LabelFile {
    Array(LabelArray),
    /// One column of a table.
    Column(Csv),
    /// Several columns of a table, which are values.
    Columns(Csv, u32),
}

pub(super) fn open(features: Opened, labels: Opened, options: &Options) -> Result<Box<dyn Samples>, ReadError> {
    let (features_name, labels_name) = (features.name.clone(), labels.name.clone());
    let samples = format::open(features, options, false)?;
    let labels = LabelFile::open(labels, options)?;
    if let (Some(samples), Some(labels)) = (samples.count(), labels.count()) {
        counts_agree(&features_name, samples, &labels_name, labels)?;
    }
    Ok(Box::new(Pair { samples, labels, read: 0, ended: false, features_name, labels_name }))
}

impl LabelFile {
    fn open(file: Opened, options: &Options) -> Result<Self, ReadError> {
        let (kind, limits) = (options.labels, file.limits.clone());
        Ok(match format::of(&file, options)? {
            Format::Idx => Self::Array(LabelArray::new(kind, || idx::open(file.input(), &limits))?),
            Format::Npy => Self::Array(LabelArray::new(kind, || npy::open(file.input(), &limits))?),
            Format::Npz => {
                let npz = Npz::open(file, options)?;
                let index = npz.labels(options)?;
                Self::Array(LabelArray::new(kind, || npz.array(index))?)
            }
            Format::SafeTensors => {
                let tensors = SafeTensors::open(file, options)?;
                let index = tensors.labels(options)?;
                Self::Array(LabelArray::new(kind, || tensors.array(index))?)
            }
            Format::Csv => {
                let table = Csv::open(&file, options, &LabelColumn::None, Role::Labels)?;
                match u32::try_from(table.features().width()) {
                    Ok(1) => Self::Column(Csv::open(&file, options, &LabelColumn::Index(0), Role::Labels)?),
                    Ok(width) => Self::Columns(table, width),
                    Err(_) => return Err(file.wrong("too many columns")),
                }
            }
            format @ (Format::LibSvm | Format::Cifar) => {
                return Err(file.wrong(format!("a {format} file holds samples, and cannot be the labels of others")));
            }
        })
    }

    fn labels(&self) -> Option<Labels> {
        match self {
            Self::Array(array) => Some(array.labels()),
            Self::Column(table) => table.labels(),
            Self::Columns(_, width) => Some(Labels::Values { width: *width }),
        }
    }

    fn count(&self) -> Option<u64> {
        match self {
            Self::Array(array) => Some(array.count()),
            Self::Column(table) | Self::Columns(table, _) => table.count(),
        }
    }

    /// Up to `most` more labels; none once all have been checked.
    fn read(&mut self, most: usize, into: &mut Vec<u8>) -> Result<usize, ReadError> {
        let mut rows = Rows::default();
        match self {
            Self::Array(array) => {
                let count = array.read(most, into)?;
                if count == 0 {
                    array.finish()?;
                }
                Ok(count)
            }
            Self::Column(table) => {
                std::mem::swap(&mut rows.labels, into);
                let count = table.read(most, &mut rows);
                std::mem::swap(&mut rows.labels, into);
                count
            }
            Self::Columns(table, _) => {
                let count = table.read(most, &mut rows)?;
                let Values::Dense(bytes) = &rows.features else { return Err(super::mixed()) };
                into.extend_from_slice(bytes);
                Ok(count)
            }
        }
    }
}

struct Pair {
    samples: Box<dyn Samples>,
    labels: LabelFile,
    read: u64,
    ended: bool,
    features_name: String,
    labels_name: String,
}

impl Samples for Pair {
    fn features(&self) -> &Features {
        self.samples.features()
    }

    fn labels(&self) -> Option<Labels> {
        self.labels.labels()
    }

    fn count(&self) -> Option<u64> {
        self.samples.count().or(self.labels.count())
    }

    fn class_names(&self) -> Option<&[String]> {
        match &self.labels {
            LabelFile::Column(table) => table.class_names(),
            _ => None,
        }
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let count = self.samples.read(most, into)?;
        let mut labelled = 0;
        while labelled < count {
            match self.labels.read(count - labelled, &mut into.labels)? {
                0 => {
                    let (labels, features) = (self.read + labelled as u64, self.features_name.escape_debug());
                    let problem = format!("it has {labels} labels, `{features}` has more samples");
                    return Err(ReadError::content(&self.labels_name, Place::Whole, problem));
                }
                more => labelled += more,
            }
        }
        self.read += count as u64;
        if count == 0 && !self.ended {
            self.ended = true;
            if self.labels.read(1, &mut Vec::new())? > 0 {
                let (samples, features) = (self.read, self.features_name.escape_debug());
                let problem = format!("it has more labels than the {samples} samples of `{features}`");
                return Err(ReadError::content(&self.labels_name, Place::Whole, problem));
            }
        }
        Ok(count)
    }
}
