//! What if something were different: constants and work, changed by words such as `bandwidth=10GB/s`.

use super::{Constants, Measured, Work};
use crate::plan::words::{number, seconds, with_unit};

/// What one may ask about, with an example of each.
const WORDS: [(&str, &str); 11] = [
    ("bandwidth", "bandwidth=10GB/s"),
    ("latency", "latency=1ms"),
    ("storage-bandwidth", "storage-bandwidth=2GB/s"),
    ("storage-latency", "storage-latency=30us"),
    ("start", "start=0.5s"),
    ("workers", "workers=50"),
    ("epochs", "epochs=20"),
    ("compute", "compute=12s"),
    ("model", "model=89MB"),
    ("data", "data=8GB"),
    ("price", "price=0.00002"),
];

/// A question that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadQuestion {
    #[error("`{0}` is no question: write `NAME=VALUE`, as in `bandwidth=10GB/s`")]
    NoValue(String),
    #[error("`{name}` is not among what can be different: use {known}", known = known())]
    Unknown { name: String },
    #[error("`{value}` is no value of `{name}`: write it as in `{example}`")]
    Value { name: &'static str, value: String, example: &'static str },
}

fn known() -> String {
    WORDS.map(|(name, _)| format!("`{name}`")).join(", ")
}

/// What a prediction is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub constants: Constants,
    pub work: Work,
    pub workers: u32,
}

impl Case {
    /// Changes what a word such as `latency=1ms` says, and nothing if it says nothing.
    pub fn ask(&mut self, question: &str) -> Result<(), BadQuestion> {
        let short = |text: &str| text.chars().take(60).collect::<String>();
        let (name, text) = question.split_once('=').ok_or_else(|| BadQuestion::NoValue(short(question)))?;
        let (name, text) = (name.trim(), text.trim());
        let Some((name, example)) = WORDS.into_iter().find(|(word, _)| *word == name) else {
            return Err(BadQuestion::Unknown { name: short(name) });
        };
        let wrong = || BadQuestion::Value { name, value: short(text), example };
        let positive = |value: Option<f64>| value.filter(|it| *it > 0.0).ok_or_else(wrong);
        let not_negative = |value: Option<f64>| value.filter(|it| *it >= 0.0).ok_or_else(wrong);
        let Self { constants, work, workers } = self;
        match name {
            "bandwidth" => constants.channel.bandwidth = Measured::exactly(positive(megabytes_per_second(text))?),
            "latency" => constants.channel.latency = Measured::exactly(not_negative(seconds(text))?),
            "storage-bandwidth" => {
                constants.storage.bandwidth = Measured::exactly(positive(megabytes_per_second(text))?);
            }
            "storage-latency" => constants.storage.latency = Measured::exactly(not_negative(seconds(text))?),
            "start" => {
                let all = not_negative(seconds(text))?;
                constants.start.0 = vec![(1, all)];
                constants.start_spread = 0.0;
            }
            "workers" => *workers = text.parse().ok().filter(|it| *it > 0).ok_or_else(wrong)?,
            "epochs" => work.epochs = positive(number(text))?,
            "compute" => work.compute = Measured::exactly(positive(seconds(text))?),
            "model" => work.model = positive(megabytes(text))?,
            "data" => work.data = not_negative(megabytes(text))?,
            _ => constants.worker_second = not_negative(number(text))?,
        }
        Ok(())
    }
}

const MEGABYTES: [(&str, f64); 7] = [
    ("B", 1e-6),
    ("KB", 1e-3),
    ("MB", 1.0),
    ("GB", 1e3),
    ("KiB", 1.024e-3),
    ("MiB", 1.048_576),
    ("GiB", 1_073.741_824),
];

fn megabytes(text: &str) -> Option<f64> {
    with_unit(text, &MEGABYTES)
}

fn megabytes_per_second(text: &str) -> Option<f64> {
    megabytes(text.strip_suffix("/s")?)
}
