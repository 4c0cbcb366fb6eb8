//! From samples to a data set: blocks as they fill, and then the manifest that names them.
//!
//! Samples stream through: a block, a window of the split and some rows are all that is in memory. Until the manifest is
//! kept by whoever asked for it, nothing points at the blocks, so a build that ends early leaves only garbage.
//!
//! - `prepare`: another shape, another size
//! - `classes`: the class names of several sources become one list
//! - `split`: one source becomes two splits
//! - `part`: one split, block by block

mod classes;
mod part;
mod prepare;
mod resize;
mod split;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::ControlFlow;

use super::block::{BlockError, numbers};
use super::manifest::{FORMAT, Manifest, ManifestError, Transform};
use super::read::ReadError;
use super::rows::{Element, Features, Labels, Rows, Samples, Values};
use crate::digest::Digest;
use classes::Classes;
use part::{Filling, SplitBuilder};
use prepare::Prepare;
use split::Splitter;

/// Bytes of features that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Samples that are read at once, where they are small; fewer where their size is not known before.
const READ_SAMPLES: usize = 1_024;
const READ_SPARSE_SAMPLES: usize = 64;
/// What is dealt out to the splits at once.
const WINDOW_BYTES: usize = 8 << 20;
const WINDOW_SAMPLES: usize = 4_096;

/// Why no data set was made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{part}: {error}")]
    Read { part: &'static str, error: ReadError },
    #[error("no samples to train on")]
    Empty,
    #[error("nothing to add: neither samples to train on nor samples to test with")]
    NothingToAdd,
    #[error("`{0}` is no share of the samples to train on: use a number between 0 and 1, as in 0.9")]
    Fraction(f64),
    #[error("a split needs samples to train on and no others: leave out the split, or the samples to test with")]
    SplitAndTest,
    #[error("a split of {fraction} of {count} samples leaves none for {part}")]
    EmptySplit { fraction: f64, count: u64, part: &'static str },
    #[error("{part}: samples have {found}, others have {expected}{hint}")]
    Features { part: &'static str, found: String, expected: String, hint: &'static str },
    #[error("{part}: samples have {found}, others have {expected}")]
    Labels { part: &'static str, found: String, expected: String },
    #[error("samples of {features} cannot have the shape {shape}: {have} numbers are not {need}")]
    Shape { features: String, shape: String, have: usize, need: usize },
    #[error("samples of {0} cannot be resized: only `HxW` and `CxHxW` can; give them such a shape first")]
    NoImage(String),
    #[error("an image of {0}x{1} pixels is not possible")]
    Size(usize, usize),
    #[error("`{0}` would fill the zeros of sparse samples: use `normalise`")]
    FillsZeros(Transform),
    #[error("the data set has the transform `{have}`, which `{asked}` cannot change: make another data set")]
    OtherTransform { have: Transform, asked: Transform },
    #[error("{part}: sample {sample} has the label {label}: classes are 0 to {}", super::manifest::MOST_CLASSES - 1)]
    Label { part: &'static str, sample: u64, label: i32 },
    #[error("{part}: sample {sample} has the class {label}, and only {names} classes have names")]
    NoName { part: &'static str, sample: u64, label: i32, names: usize },
    #[error("{part}: class `{name}` is not among the class names: {known}")]
    OtherName { part: &'static str, name: String, known: String },
    #[error("{0}")]
    ClassNames(String),
    #[error("{part}: sample {sample} has the label `{value}`: replace it, or leave the sample out")]
    LabelNotFinite { part: &'static str, sample: u64, value: f32 },
    #[error("{part}: feature {feature} of sample {sample} is no finite number: replace it, or leave the sample out")]
    NotFinite { part: &'static str, sample: u64, feature: usize },
    #[error(
        "{part}: sample {sample} takes {bytes} bytes: at most {} are kept for one",
        super::block::MOST_SAMPLE_BYTES
    )]
    SampleSize { part: &'static str, sample: u64, bytes: u64 },
    #[error("{part}: after sample {sample}: {error}")]
    Rows { part: &'static str, sample: u64, error: BlockError },
    #[error("a block could not be written: {0}")]
    Write(#[from] io::Error),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("cancelled")]
    Cancelled,
}

/// Where blocks go, as soon as they are full.
pub trait BlockSink {
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Digest>;
}

/// How a data set is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The share of the samples to train on, where there are no others to test with.
    pub split: Option<f64>,
    /// Of the split.
    pub seed: u64,
    /// Another shape for every sample, of as many numbers.
    pub shape: Option<Vec<usize>>,
    /// Another height and width for every image.
    pub resize: Option<(usize, usize)>,
    /// None: none, or what the data set that is added to has.
    pub transform: Option<Transform>,
    /// What the classes are called, in order. Empty: what the sources call them.
    pub class_names: Vec<String>,
    /// The rule that made the samples, where a program did.
    pub synthetic: Option<String>,
}

/// Where samples come from; several sources follow each other.
#[derive(Default)]
pub struct Sources {
    pub train: Vec<Box<dyn Samples>>,
    pub test: Vec<Box<dyn Samples>>,
}

/// Makes one data set.
pub struct Builder<'a> {
    options: Options,
    sink: &'a mut dyn BlockSink,
    watch: Option<&'a mut dyn FnMut(u64) -> ControlFlow<()>>,
}

impl<'a> Builder<'a> {
    pub fn new(options: Options, sink: &'a mut dyn BlockSink) -> Self {
        Self { options, sink, watch: None }
    }

    /// Tells `watch` again and again how many samples were read; it may ask to stop.
    pub fn watch(self, watch: &'a mut dyn FnMut(u64) -> ControlFlow<()>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// A new data set.
    pub fn build(self, sources: Sources) -> Result<Manifest, BuildError> {
        let manifest = self.run(None, sources)?;
        if manifest.train.count == 0 {
            return Err(BuildError::Empty);
        }
        Ok(manifest)
    }

    /// A new version of a data set: its blocks, and those with more samples.
    pub fn append(self, to: &Manifest, sources: Sources) -> Result<Manifest, BuildError> {
        to.check()?;
        let manifest = self.run(Some(to), sources)?;
        if (manifest.train.count, manifest.test.count) == (to.train.count, to.test.count) {
            return Err(BuildError::NothingToAdd);
        }
        Ok(manifest)
    }

    fn run(mut self, old: Option<&Manifest>, mut sources: Sources) -> Result<Manifest, BuildError> {
        let kinds = Kinds::agree(old, &sources, &self.options)?;
        let transform = self.transform(old, &kinds.features)?;
        let splitter = self.options.split.map(|fraction| Splitter::new(fraction, self.options.seed)).transpose()?;
        if splitter.is_some() && !sources.test.is_empty() {
            return Err(BuildError::SplitAndTest);
        }
        let mut run = Run {
            train: SplitBuilder::new(
                "train",
                &kinds,
                old.map(|old| (&old.train, &old.features, Some(&old.statistics))),
            ),
            test: SplitBuilder::new("test", &kinds, old.map(|old| (&old.test, &old.features, None))),
            classes: Classes::new(old, &self.options.class_names, kinds.labels)?,
            kinds,
            splitter,
            window: Rows::default(),
            seen: 0,
        };
        run.window = Rows::of(&run.kinds.features);
        for source in &mut sources.train {
            run.read(&mut self, source.as_mut(), "train")?;
        }
        run.deal(self.sink)?;
        for source in &mut sources.test {
            run.read(&mut self, source.as_mut(), "test")?;
        }
        run.finish(self, old, transform)
    }

    fn transform(&self, old: Option<&Manifest>, features: &Features) -> Result<Transform, BuildError> {
        let have = old.map(|old| old.transform);
        let transform = match (have, self.options.transform) {
            (Some(have), Some(asked)) if have != asked => return Err(BuildError::OtherTransform { have, asked }),
            (have, asked) => have.or(asked).unwrap_or_default(),
        };
        match features {
            Features::Sparse { .. } if transform.fills_zeros() => Err(BuildError::FillsZeros(transform)),
            _ => Ok(transform),
        }
    }
}

/// What every sample of the data set will be.
struct Kinds {
    features: Features,
    labels: Option<Labels>,
}

impl Kinds {
    fn agree(old: Option<&Manifest>, sources: &Sources, options: &Options) -> Result<Self, BuildError> {
        let mut kinds = old.map(|old| Self { features: old.features.clone(), labels: old.labels });
        let train = sources.train.iter().map(|source| ("train", source));
        for (part, source) in train.chain(sources.test.iter().map(|source| ("test", source))) {
            let (features, labels) = (Prepare::new(source.features(), options)?.features, source.labels());
            let Some(kinds) = &mut kinds else {
                super::manifest::check_features(&features)?;
                kinds = Some(Self { features, labels });
                continue;
            };
            if labels != kinds.labels {
                let (found, expected) = (describe_labels(labels), describe_labels(kinds.labels));
                return Err(BuildError::Labels { part, found, expected });
            }
            match (&mut kinds.features, &features) {
                (Features::Sparse { columns }, Features::Sparse { columns: more }) => *columns = (*columns).max(*more),
                (expected, found) if expected == found => {}
                (expected, found) => {
                    let hint = if expected.width() == found.width() && found.sample_bytes() == expected.sample_bytes() {
                        "; give a shape"
                    } else {
                        ""
                    };
                    let (found, expected) = (describe_features(found), describe_features(expected));
                    return Err(BuildError::Features { part, found, expected, hint });
                }
            }
        }
        kinds.ok_or(if old.is_some() { BuildError::NothingToAdd } else { BuildError::Empty })
    }
}

/// A build under way.
struct Run {
    kinds: Kinds,
    classes: Classes,
    train: SplitBuilder,
    test: SplitBuilder,
    splitter: Option<Splitter>,
    /// Samples that are in no split yet.
    window: Rows,
    seen: u64,
}

impl Run {
    fn read(
        &mut self,
        builder: &mut Builder<'_>,
        source: &mut dyn Samples,
        part: &'static str,
    ) -> Result<(), BuildError> {
        let prepare = Prepare::new(source.features(), &builder.options)?;
        let most = source
            .features()
            .sample_bytes()
            .map_or(READ_SPARSE_SAMPLES, |bytes| (READ_BYTES / bytes.max(1)).clamp(1, READ_SAMPLES));
        let mut names = classes::SourceNames::default();
        let (mut rows, mut before) = (Rows::of(source.features()), 0);
        loop {
            rows.clear();
            let count = source.read(most, &mut rows).map_err(|error| BuildError::Read { part, error })?;
            if count == 0 {
                return Ok(());
            }
            if count != rows.count {
                let error = BlockError::Size { count: count as u64, bytes: rows.count as u64 };
                return Err(BuildError::Rows { part, sample: before, error });
            }
            check_finite(&rows, source.features(), part, before)?;
            prepare.run(&mut rows);
            self.classes.map(&mut rows, &mut names, source.class_names(), part, before)?;
            if self.splitter.is_some() {
                self.wait(&rows, part, before, builder.sink)?;
            } else {
                let into = if part == "train" { &mut self.train } else { &mut self.test };
                into.push(&rows, 0..rows.count, &self.kinds, builder.sink)?;
            }
            before += count as u64;
            self.seen += count as u64;
            if let Some(watch) = &mut builder.watch
                && watch(self.seen).is_break()
            {
                return Err(BuildError::Cancelled);
            }
        }
    }

    /// Puts rows into the window, and deals it out when it is full: cut by what the samples are, never by how they were
    /// read, so that the same samples are always dealt alike.
    fn wait(
        &mut self,
        rows: &Rows,
        part: &'static str,
        before: u64,
        sink: &mut dyn BlockSink,
    ) -> Result<(), BuildError> {
        let mut start = 0;
        while start < rows.count {
            let filling = Filling { bytes: WINDOW_BYTES, samples: WINDOW_SAMPLES };
            let fits = filling.fits(&self.window, rows, start);
            let error = BlockError::Rows { count: rows.count, labels: rows.labels.len(), features: 0 };
            if !self.window.extend(rows, start..start + fits) {
                return Err(BuildError::Rows { part, sample: before, error });
            }
            start += fits;
            if start < rows.count {
                self.deal(sink)?;
            }
        }
        Ok(())
    }

    fn deal(&mut self, sink: &mut dyn BlockSink) -> Result<(), BuildError> {
        let Some(splitter) = &mut self.splitter else { return Ok(()) };
        let classes: Vec<u32> = match self.kinds.labels {
            Some(Labels::Class) => numbers(&self.window.labels, u32::from_le_bytes).collect(),
            _ => vec![0; self.window.count],
        };
        let mut start = 0;
        for run in splitter.deal(&classes).chunk_by(|one, next| one == next) {
            let into = if run[0] { &mut self.test } else { &mut self.train };
            into.push(&self.window, start..start + run.len(), &self.kinds, sink)?;
            start += run.len();
        }
        self.window.clear();
        Ok(())
    }

    fn finish(
        mut self,
        builder: Builder<'_>,
        old: Option<&Manifest>,
        transform: Transform,
    ) -> Result<Manifest, BuildError> {
        let (mut train, statistics) = self.train.finish(&self.kinds, builder.sink)?;
        let (mut test, _) = self.test.finish(&self.kinds, builder.sink)?;
        if let Some(fraction) = builder.options.split {
            let before = old.map_or((0, 0), |old| (old.train.count, old.test.count));
            for (part, none) in [("train", train.count == before.0), ("test", test.count == before.1)] {
                if none && self.seen > 0 {
                    return Err(BuildError::EmptySplit { fraction, count: self.seen, part });
                }
            }
        }
        let classes = train.classes.len().max(test.classes.len()).max(self.classes.names.len());
        train.classes.resize(classes, 0);
        test.classes.resize(classes, 0);
        let manifest = Manifest {
            format: FORMAT,
            features: self.kinds.features,
            labels: self.kinds.labels,
            class_names: std::mem::take(&mut self.classes.names),
            transform,
            statistics,
            train,
            test,
            synthetic: builder.options.synthetic.or_else(|| old.and_then(|old| old.synthetic.clone())),
        };
        if self.seen > 0 {
            manifest.check()?;
        }
        Ok(manifest)
    }
}

/// Refuses what no statistics and no training survive.
fn check_finite(rows: &Rows, features: &Features, part: &'static str, before: u64) -> Result<(), BuildError> {
    let width = features.width().max(1);
    let found = match (&rows.features, features) {
        (Values::Dense(bytes), Features::Dense { element: Element::F32, .. }) => numbers(bytes, f32::from_le_bytes)
            .position(|value| !value.is_finite())
            .map(|index| (index / width, index % width)),
        (Values::Sparse { starts, columns, values }, _) => {
            values.iter().position(|value| !value.is_finite()).map(|index| {
                let sample = starts.partition_point(|start| *start as usize <= index).saturating_sub(1);
                (sample, columns.get(index).map_or(0, |column| *column as usize))
            })
        }
        _ => None,
    };
    match found {
        Some((sample, feature)) => Err(BuildError::NotFinite { part, sample: before + sample as u64, feature }),
        None => Ok(()),
    }
}

/// A shape as people write it.
pub(super) fn shape_text(shape: &[usize]) -> String {
    let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
    if sizes.is_empty() { "1 number".to_owned() } else { sizes.join("x") }
}

fn describe_features(features: &Features) -> String {
    match features {
        Features::Dense { element, shape } => {
            let element = match element {
                Element::U8 => "u8",
                Element::I32 => "i32",
                Element::F32 => "f32",
            };
            format!("{} of {element}", shape_text(shape))
        }
        Features::Sparse { columns } => format!("{columns} sparse columns"),
    }
}

fn describe_labels(labels: Option<Labels>) -> String {
    match labels {
        None => "no labels".to_owned(),
        Some(Labels::Class) => "classes as labels".to_owned(),
        Some(Labels::Values { width }) => format!("{width} values as labels"),
    }
}
