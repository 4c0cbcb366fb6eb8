//! Samples of which the features are one array and the labels, if there are any, another.

use super::super::rows::Samples;
use super::array::Array;
use super::error::{Place, ReadError};
use super::labels::LabelArray;
use crate::dataset::rows::{Features, Labels, Rows, Values};

pub(super) struct Arrays {
    features: Array,
    labels: Option<LabelArray>,
}

impl Arrays {
    pub fn new(features: Array, labels: Option<LabelArray>) -> Result<Self, ReadError> {
        if let Some(labels) = &labels {
            counts_agree(&features.input.name, features.count(), &labels.input().name, labels.count())?;
        }
        Ok(Self { features, labels })
    }
}

pub(super) fn counts_agree(features: &str, samples: u64, labels: &str, count: u64) -> Result<(), ReadError> {
    if samples == count {
        return Ok(());
    }
    let features = features.escape_debug();
    Err(ReadError::content(labels, Place::Whole, format!("it has {count} labels, `{features}` has {samples} samples")))
}

impl Samples for Arrays {
    fn features(&self) -> &Features {
        self.features.features()
    }

    fn labels(&self) -> Option<Labels> {
        self.labels.as_ref().map(LabelArray::labels)
    }

    fn count(&self) -> Option<u64> {
        Some(self.features.count())
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let Values::Dense(bytes) = &mut into.features else { return Err(super::mixed()) };
        let count = self.features.features_of(most, bytes)?;
        if let Some(labels) = &mut self.labels {
            labels.read(count, &mut into.labels)?;
        }
        if count == 0 {
            self.features.finish()?;
            self.labels.as_mut().map_or(Ok(()), LabelArray::finish)?;
        }
        Ok(count)
    }
}
