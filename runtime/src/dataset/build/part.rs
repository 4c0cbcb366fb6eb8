//! One split on its way: rows until they fill a block, then the next.

use std::ops::Range;

use super::{BlockSink, BuildError, Kinds};
use crate::dataset::block::{self, BlockError, MOST_SAMPLE_BYTES, MOST_SAMPLES, TARGET_BYTES};
use crate::dataset::manifest::{BlockRef, Split, Statistics};
use crate::dataset::rows::{Features, Labels, Rows, Values};

/// When rows are enough.
pub struct Filling {
    pub bytes: usize,
    pub samples: usize,
}

impl Filling {
    /// How many of the rows from `start` on can be added to those there are. One can, if there are none.
    pub fn fits(&self, have: &Rows, rows: &Rows, start: usize) -> usize {
        let waiting = rows.count - start;
        let fits = match (&have.features, &rows.features) {
            (Values::Dense(_), Values::Dense(bytes)) => {
                let size = (bytes.len() / rows.count).max(1);
                (self.bytes / size).min(self.samples).saturating_sub(have.count)
            }
            (Values::Sparse { values, .. }, Values::Sparse { starts, .. }) => {
                let room = (self.bytes / 8).saturating_sub(values.len());
                let first = starts.get(start).map_or(0, |start| *start as usize);
                let ends = starts.get(start + 1..).unwrap_or(&[]);
                let fits = ends.partition_point(|end| (*end as usize).saturating_sub(first) <= room);
                fits.min(self.samples.saturating_sub(have.count))
            }
            _ => 1,
        };
        fits.max(usize::from(have.count == 0)).min(waiting)
    }
}

/// A split that is being made.
pub struct SplitBuilder {
    name: &'static str,
    rows: Rows,
    split: Split,
    /// Only of the samples to train on.
    statistics: Option<Statistics>,
    /// Samples that were here before this build.
    old: u64,
}

impl SplitBuilder {
    pub fn new(name: &'static str, kinds: &Kinds, old: Option<(&Split, &Features, Option<&Statistics>)>) -> Self {
        let split = old.map(|(split, ..)| split.clone()).unwrap_or_default();
        let statistics = (name == "train").then(|| match old {
            Some((_, features, Some(statistics))) => {
                let mut statistics = statistics.clone();
                statistics.widen(features, &kinds.features);
                statistics
            }
            _ => Statistics::nothing(kinds.features.groups()),
        });
        Self { name, rows: Rows::of(&kinds.features), old: split.count, split, statistics }
    }

    pub fn push(
        &mut self,
        rows: &Rows,
        range: Range<usize>,
        kinds: &Kinds,
        sink: &mut dyn BlockSink,
    ) -> Result<(), BuildError> {
        let mut start = range.start;
        while start < range.end {
            let filling = Filling { bytes: TARGET_BYTES, samples: MOST_SAMPLES };
            let fits = filling.fits(&self.rows, rows, start).min(range.end - start);
            if fits == 0 {
                self.write(kinds, sink)?;
                continue;
            }
            if !self.rows.extend(rows, start..start + fits) {
                let error = BlockError::Rows { count: rows.count, labels: rows.labels.len(), features: 0 };
                return Err(BuildError::Rows { part: self.name, sample: self.written(), error });
            }
            start += fits;
        }
        Ok(())
    }

    /// Samples of this build in blocks.
    fn written(&self) -> u64 {
        self.split.count - self.old
    }

    fn write(&mut self, kinds: &Kinds, sink: &mut dyn BlockSink) -> Result<(), BuildError> {
        if self.rows.count == 0 {
            return Ok(());
        }
        let (part, sample) = (self.name, self.written());
        let bytes = block::encode(&self.rows, &kinds.features, kinds.labels).map_err(|error| BuildError::Rows {
            part,
            sample,
            error,
        })?;
        // A sample that is larger than a block is alone in its block.
        if let Values::Sparse { values, .. } = &self.rows.features
            && 8 * values.len() > MOST_SAMPLE_BYTES
        {
            return Err(BuildError::SampleSize { part, sample, bytes: 8 * values.len() as u64 });
        }
        if let Some(statistics) = &mut self.statistics {
            statistics.merge(&Statistics::of(&self.rows, &kinds.features));
        }
        if kinds.labels == Some(Labels::Class) {
            count_classes(&self.rows.labels, &mut self.split.classes);
        }
        // `encode` refuses rows that an u32 cannot count.
        let (count, size) = (self.rows.count as u32, bytes.len() as u64);
        let digest = sink.write(bytes)?;
        self.split.blocks.push(BlockRef { digest, count, bytes: size });
        self.split.count += u64::from(count);
        self.rows.clear();
        Ok(())
    }

    /// The split, and the statistics of samples to train on.
    pub fn finish(&mut self, kinds: &Kinds, sink: &mut dyn BlockSink) -> Result<(Split, Statistics), BuildError> {
        self.write(kinds, sink)?;
        Ok((std::mem::take(&mut self.split), self.statistics.take().unwrap_or_default()))
    }
}

fn count_classes(labels: &[u8], counts: &mut Vec<u64>) {
    for class in block::numbers(labels, u32::from_le_bytes) {
        let class = class as usize;
        // Labels were checked to be classes when they were read.
        if class >= counts.len() {
            counts.resize(class + 1, 0);
        }
        counts[class] += 1;
    }
}
