//! Values of a job that are written as a number or as a word.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sync::Every;

/// A number or a text, as JSON has it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum NumberOrText {
    Number(u64),
    Text(String),
}

impl NumberOrText {
    /// A number where the text is one.
    fn of(text: String) -> Self {
        text.parse().map_or(Self::Text(text), Self::Number)
    }
}

impl fmt::Display for NumberOrText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(out),
            Self::Text(text) => text.fmt(out),
        }
    }
}

/// Reads a value from a number or a text, both as it is written, and writes it so.
macro_rules! number_or_text {
    ($($name:ident),+) => {$(
        impl TryFrom<NumberOrText> for $name {
            type Error = String;

            fn try_from(word: NumberOrText) -> Result<Self, String> {
                word.to_string().parse()
            }
        }

        impl From<$name> for NumberOrText {
            fn from(value: $name) -> Self {
                Self::of(value.to_string())
            }
        }
    )+};
}

number_or_text!(K, Keep, FanOut, Workers, Memory);

/// How often k-average averages: a number of steps, `epoch`, `3epochs`, or `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub enum K {
    Steps(u64),
    Epochs(u32),
    End,
}

impl K {
    /// What it means, unless it is zero.
    pub fn every(self) -> Option<Every> {
        match self {
            Self::Steps(steps) => NonZeroU64::new(steps).map(Every::Steps),
            Self::Epochs(epochs) => NonZeroU32::new(epochs).map(Every::Epochs),
            Self::End => Some(Every::End),
        }
    }
}

impl fmt::Display for K {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => steps.fmt(out),
            Self::Epochs(1) => out.write_str("epoch"),
            Self::Epochs(epochs) => write!(out, "{epochs}epochs"),
            Self::End => out.write_str("end"),
        }
    }
}

impl FromStr for K {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let text: String = text.chars().take(80).collect();
            format!("`{text}` is not a number of steps, `epoch`, a number of epochs as in `3epochs`, or `end`")
        };
        match text {
            "epoch" => Ok(Self::Epochs(1)),
            "end" => Ok(Self::End),
            other => match other.strip_suffix("epochs") {
                Some(epochs) => epochs.trim().parse().map(Self::Epochs).map_err(|_| wrong()),
                None => other.parse().map(Self::Steps).map_err(|_| wrong()),
            },
        }
    }
}

/// Which models stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub enum Keep {
    /// The one after the last epoch.
    #[default]
    Last,
    /// The one that validated best.
    Best,
    /// The last, and those of this many epochs before it.
    Latest(u32),
}

impl fmt::Display for Keep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => out.write_str("last"),
            Self::Best => out.write_str("best"),
            Self::Latest(count) => count.fmt(out),
        }
    }
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(Self::Last),
            "best" => Ok(Self::Best),
            other => other
                .parse()
                .map(Self::Latest)
                .map_err(|_| format!("`{other}` is not `best`, `last` or a number of epochs")),
        }
    }
}

/// Functions that compute one worker's step side by side: a number of them, or `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub enum FanOut {
    Functions(u32),
    /// One call for every batch of the worker's shard, all at the same weights, and one step of the optimizer an epoch.
    Epoch,
}

impl fmt::Display for FanOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions(functions) => functions.fmt(out),
            Self::Epoch => out.write_str("epoch"),
        }
    }
}

impl FromStr for FanOut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "epoch" => Ok(Self::Epoch),
            other => other.parse().map(Self::Functions).map_err(|_| {
                let text: String = other.chars().take(80).collect();
                format!("`{text}` is neither a number of functions nor `epoch`")
            }),
        }
    }
}

/// How many workers: a number of them, or from so many to so many, as in `2..8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub struct Workers {
    /// A job begins with as many as find room, but with no fewer.
    pub least: u32,
    pub most: u32,
}

impl Workers {
    pub const fn exactly(workers: u32) -> Self {
        Self { least: workers, most: workers }
    }

    pub fn is_range(self) -> bool {
        self.least != self.most
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_range() {
            true => write!(out, "{}..{}", self.least, self.most),
            false => self.least.fmt(out),
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let text: String = text.chars().take(80).collect();
            format!("`{text}` is neither a number of workers nor a range as in `2..8`")
        };
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (number(least)?, number(most.trim_start_matches('='))?),
            None => (number(text)?, number(text)?),
        };
        if least > most {
            return Err(format!("`{text}` is an empty range: the smaller number comes first"));
        }
        Ok(Self { least, most })
    }
}

/// Memory of each worker: bytes, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub enum Memory {
    Bytes(u64),
    /// As much as it turns out to need: twice as much after each time that it was not enough.
    Auto,
}

impl fmt::Display for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(out),
            Self::Auto => out.write_str("auto"),
        }
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            other => other.parse().map(Self::Bytes).map_err(|_| {
                let text: String = other.chars().take(80).collect();
                format!("`{text}` is neither a number of bytes nor `auto`")
            }),
        }
    }
}

/// Ends a job that no longer gets better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    /// Validations without getting better that are put up with.
    pub patience: u32,
    /// By how much the loss must fall to count.
    #[serde(default)]
    pub delta: f64,
}

/// Lowers the learning rate of a job that no longer gets better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// What the rate is multiplied with.
    pub factor: f32,
    /// Validations without getting better that are put up with.
    pub patience: u32,
    /// Never below this.
    #[serde(default)]
    pub min: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same<T: FromStr<Err = String> + fmt::Display>(texts: &[&str]) {
        for text in texts {
            assert_eq!(text.parse::<T>().map(|value| value.to_string()), Ok((*text).to_owned()));
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        same::<K>(&["1", "64", "epoch", "3epochs", "end"]);
        same::<Keep>(&["last", "best", "3"]);
        same::<FanOut>(&["1", "epoch"]);
        same::<Workers>(&["4", "2..8"]);
        same::<Memory>(&["1048576", "auto"]);
        assert!(["8..2", "2..", "..", "two", "2..8..9"].iter().all(|text| text.parse::<Workers>().is_err()));
        assert!("-1".parse::<K>().is_err() && "epochs".parse::<K>().is_err());
    }

    #[test]
    fn json_may_have_a_number_or_a_text() {
        let read = |json: &str| serde_json::from_str::<FanOut>(json).map_err(|error| error.to_string());
        assert_eq!(read("4"), Ok(FanOut::Functions(4)));
        assert_eq!(read("\"4\""), Ok(FanOut::Functions(4)));
        assert_eq!(read("\"epoch\""), Ok(FanOut::Epoch));
        assert_eq!(serde_json::to_string(&FanOut::Functions(4)).unwrap(), "4");
        assert_eq!(serde_json::to_string(&FanOut::Epoch).unwrap(), "\"epoch\"");
    }
}
