//! Which format a file has, and the reader for it.

use std::fmt;
use std::str::FromStr;

use super::arrays::Arrays;
use super::cifar::{self, Cifar};
use super::csv::Csv;
use super::error::ReadError;
use super::labels::LabelArray;
use super::libsvm::LibSvm;
use super::names::Role;
use super::npz::Npz;
use super::safetensors::{self, SafeTensors};
use super::source::Opened;
use super::{LabelColumn, Options, Samples, idx, npy, zip};

/// The formats of files, each also compressed with gzip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Idx,
    Npy,
    Npz,
    Csv,
    LibSvm,
    Cifar,
    SafeTensors,
}

impl Format {
    pub const ALL: [Self; 7] =
        [Self::Idx, Self::Npy, Self::Npz, Self::Csv, Self::LibSvm, Self::Cifar, Self::SafeTensors];

    pub fn name(self) -> &'static str {
        match self {
            Self::Idx => "idx",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Csv => "csv",
            Self::LibSvm => "libsvm",
            Self::Cifar => "cifar10",
            Self::SafeTensors => "safetensors",
        }
    }

    /// By the end of a file's name.
    fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let ends: [(&[&str], Self); 7] = [
            (&[".idx", "-ubyte", ".ubyte"], Self::Idx),
            (&[".npy"], Self::Npy),
            (&[".npz"], Self::Npz),
            (&[".csv", ".tsv"], Self::Csv),
            (&[".libsvm", ".svm", ".svmlight"], Self::LibSvm),
            (&[".safetensors"], Self::SafeTensors),
            (&[".bin"], Self::Cifar),
        ];
        ends.iter().find(|(ends, _)| ends.iter().any(|end| name.ends_with(end))).map(|&(_, format)| format)
    }

    /// By what it begins with, and how long it is if that is known.
    fn of_content(first: &[u8], length: Option<u64>) -> Option<Self> {
        if first.starts_with(npy::MAGIC) {
            return Some(Self::Npy);
        }
        if first.starts_with(zip::MAGIC) {
            return Some(Self::Npz);
        }
        if safetensors::begins(first) {
            return Some(Self::SafeTensors);
        }
        if idx::begins(first) {
            return Some(Self::Idx);
        }
        let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
        if !first.is_empty() && first.iter().all(is_text) {
            return Some(if holds_pairs(first) { Self::LibSvm } else { Self::Csv });
        }
        length.filter(|&length| length > 0 && length % cifar::SAMPLE == 0).map(|_| Self::Cifar)
    }
}

/// Whether the first line with samples has `index:value` pairs.
fn holds_pairs(text: &[u8]) -> bool {
    let before_comment = |line: &[u8]| line.iter().position(|&byte| byte == b'#').unwrap_or(line.len());
    let lines = text.split(|&byte| byte == b'\n').map(|line| &line[..before_comment(line)]);
    let line = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty()).unwrap_or_default();
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).skip(1).take(8).peekable();
    words.peek().is_some() && words.all(|word| word.contains(&b':'))
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("no format `{}`; there are {known}", text.escape_debug())
        })
    }
}

/// The format asked for, or the one it looks like.
pub(super) fn of(file: &Opened, options: &Options) -> Result<Format, ReadError> {
    if let Some(format) = options.format.or_else(|| Format::of_name(&file.name)) {
        return Ok(format);
    }
    let mut input = file.input();
    let length = input.left();
    let first = input.peek(4096)?;
    if first.is_empty() {
        return Err(file.wrong("the file is empty"));
    }
    Format::of_content(first, length).ok_or_else(|| {
        let known = Format::ALL.map(Format::name).join(", ");
        file.wrong(format!("its format is not clear from its name or its content; say which: {known}"))
    })
}

/// Samples, with the labels that are in the same file if `labels` wants them.
pub(super) fn open(file: Opened, options: &Options, labels: bool) -> Result<Box<dyn Samples>, ReadError> {
    let format = of(&file, options)?;
    let limits = file.limits.clone();
    Ok(match format {
        Format::Idx => Box::new(Arrays::new(idx::open(file.input(), &limits)?, None)?),
        Format::Npy => Box::new(Arrays::new(npy::open(file.input(), &limits)?, None)?),
        Format::Npz => {
            let npz = Npz::open(file, options)?;
            let (features, labels) = npz.find(options, labels)?;
            let labels = labels.map(|index| LabelArray::new(options.labels, || npz.array(index))).transpose()?;
            Box::new(Arrays::new(npz.array(features)?, labels)?)
        }
        Format::SafeTensors => {
            let tensors = SafeTensors::open(file, options)?;
            let (features, labels) = tensors.find(options, labels)?;
            let labels = labels.map(|index| LabelArray::new(options.labels, || tensors.array(index))).transpose()?;
            Box::new(Arrays::new(tensors.array(features)?, labels)?)
        }
        Format::Csv => {
            let label = if labels { &options.label_column } else { &LabelColumn::None };
            Box::new(Csv::open(&file, options, label, Role::Features)?)
        }
        Format::LibSvm | Format::Cifar if !labels => {
            return Err(file.wrong(format!("a {format} file has labels itself; give no other file for them")));
        }
        Format::LibSvm => Box::new(LibSvm::open(&file, options)?),
        Format::Cifar => Box::new(Cifar::open(&file, options)?),
    })
}
