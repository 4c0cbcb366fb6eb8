//! Manifests that are read back: nothing in them is believed before it was counted.

use serde::Deserialize;

use super::{FORMAT, Manifest, Split};
use crate::dataset::block::{BlockError, MOST_SAMPLE_BYTES};
use crate::dataset::rows::{Features, Labels};

/// Largest manifest that is read: a million blocks, or 2 TB of samples.
pub const MOST_BYTES: usize = 256 << 20;
/// Classes of a data set. Their counts are in every manifest.
pub const MOST_CLASSES: usize = 65_536;
/// Bytes in the name of a class.
pub const MOST_NAME_BYTES: usize = 256;
/// Dimensions of a sample.
const MOST_DIMENSIONS: usize = 8;

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("manifest of {0} bytes: at most {MOST_BYTES} are read")]
    TooLarge(usize),
    #[error("not a manifest: {0}")]
    Json(#[from] serde_json::Error),
    #[error("manifest of format {0}: this version reads format {FORMAT}")]
    Format(u32),
    #[error("manifest: {0}")]
    Wrong(String),
    #[error("manifest: block {block} of {split}: {error}")]
    Block { split: &'static str, block: usize, error: BlockError },
}

impl Manifest {
    /// A manifest from what [`Self::to_bytes`] gave, checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Tag {
            format: u32,
        }
        if bytes.len() > MOST_BYTES {
            return Err(ManifestError::TooLarge(bytes.len()));
        }
        // First the tag alone: what another format says beside it must not matter.
        let Tag { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(ManifestError::Format(format));
        }
        let manifest: Self = serde_json::from_slice(bytes)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Whether everything in it fits together.
    pub fn check(&self) -> Result<(), ManifestError> {
        check_features(&self.features)?;
        ensure(self.labels != Some(Labels::Values { width: 0 }), || "labels of no values".to_owned())?;
        let label_bytes = self.labels.map_or(0, Labels::size);
        ensure(label_bytes <= MOST_SAMPLE_BYTES, || format!("labels of {label_bytes} bytes"))?;
        ensure(self.transform.is_valid(), || format!("transform `{}`", self.transform))?;
        let fills = self.transform.fills_zeros() && matches!(self.features, Features::Sparse { .. });
        ensure(!fills, || format!("transform `{}` of sparse features", self.transform))?;
        self.check_split("train", &self.train)?;
        self.check_split("test", &self.test)?;
        self.check_classes()?;
        self.check_statistics()
    }

    fn check_split(&self, name: &'static str, split: &Split) -> Result<(), ManifestError> {
        let mut count = 0_u64;
        for (index, block) in split.blocks.iter().enumerate() {
            ensure(block.count > 0, || format!("block {index} of {name} has no samples"))?;
            block.layout(&self.features, self.labels).map_err(|error| ManifestError::Block {
                split: name,
                block: index,
                error,
            })?;
            count = count.saturating_add(block.count.into());
        }
        ensure(count == split.count, || format!("{name} has {} samples and its blocks have {count}", split.count))
    }

    fn check_classes(&self) -> Result<(), ManifestError> {
        let classes = self.train.classes.len();
        ensure(self.test.classes.len() == classes, || {
            format!("{classes} classes in train and {} in test", self.test.classes.len())
        })?;
        ensure(classes <= MOST_CLASSES, || format!("{classes} classes: at most {MOST_CLASSES} are known"))?;
        if self.labels != Some(Labels::Class) {
            return ensure(classes == 0 && self.class_names.is_empty(), || {
                "classes are counted and labels are none".to_owned()
            });
        }
        for (name, split) in [("train", &self.train), ("test", &self.test)] {
            let counted = split.classes.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
            ensure(counted == split.count, || {
                format!("{name} has {} samples and its classes have {counted}", split.count)
            })?;
        }
        ensure(self.class_names.is_empty() || self.class_names.len() == classes, || {
            format!("{} names for {classes} classes", self.class_names.len())
        })?;
        let long = self.class_names.iter().position(|name| name.is_empty() || name.len() > MOST_NAME_BYTES);
        ensure(long.is_none(), || format!("class {} has no name or a very long one", long.unwrap_or(0)))
    }

    fn check_statistics(&self) -> Result<(), ManifestError> {
        let (statistics, groups) = (&self.statistics, self.features.groups());
        let lengths = [statistics.mean.len(), statistics.squares.len(), statistics.low.len(), statistics.high.len()];
        ensure(lengths == [groups; 4], || format!("statistics of {lengths:?} entries for {groups}"))?;
        let numbers = self.train.count.checked_mul((self.features.width() / groups.max(1)) as u64);
        ensure(numbers == Some(statistics.count), || {
            format!("statistics over {} numbers of {} samples", statistics.count, self.train.count)
        })?;
        let moments = statistics.mean.iter().chain(&statistics.squares).all(|number| number.is_finite())
            && statistics.squares.iter().all(|squares| *squares >= 0.0);
        let ordered = statistics
            .low
            .iter()
            .zip(&statistics.high)
            .all(|(low, high)| low.is_finite() && high.is_finite() && low <= high);
        ensure(moments && ordered, || "statistics that no numbers can have".to_owned())
    }
}

/// Whether samples can have such features.
pub(crate) fn check_features(features: &Features) -> Result<(), ManifestError> {
    if let Features::Dense { shape, .. } = features {
        ensure(shape.len() <= MOST_DIMENSIONS, || format!("samples of {} dimensions", shape.len()))?;
    }
    ensure(features.width() > 0, || "samples without features".to_owned())?;
    let bytes = features.sample_bytes().unwrap_or(0);
    ensure(bytes <= MOST_SAMPLE_BYTES, || {
        format!("samples of {bytes} bytes: at most {MOST_SAMPLE_BYTES} are kept for one")
    })
}

fn ensure(right: bool, wrong: impl FnOnce() -> String) -> Result<(), ManifestError> {
    if right { Ok(()) } else { Err(ManifestError::Wrong(wrong())) }
}
