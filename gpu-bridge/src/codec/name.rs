//! Codecs as text, and what is wrong with one.

use std::fmt;
use std::str::FromStr;

use super::{BUCKET, Codec};
use crate::op::codec::levels;

/// A text that is no codec, or a codec that cannot be.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum ParseCodecError {
    #[error(
        "`{0}` is no codec; there are `plain`, `f16`, `qsgd:4` (bits), `qsgd:4,512` (bits, bucket), `top-k:0.01` (fraction) and `significance:0.01` (threshold)"
    )]
    Unknown(String),
    #[error("`{codec}` needs a number, as in `{example}`")]
    Missing { codec: &'static str, example: &'static str },
    #[error("`{codec}` takes nothing after its name, not `{found}`")]
    TooMuch { codec: &'static str, found: String },
    #[error("`{codec}`: {what} `{found}` must be {must}")]
    BadNumber { codec: &'static str, what: &'static str, found: String, must: &'static str },
    #[error("qsgd: {0}")]
    BadLevels(String),
}

impl Codec {
    /// What comes before the colon.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::F16 => "f16",
            Self::Qsgd { .. } => "qsgd",
            Self::TopK { .. } => "top-k",
            Self::Significance { .. } => "significance",
        }
    }

    /// Refuses numbers that make no sense.
    pub fn check(&self) -> Result<(), ParseCodecError> {
        let bad = |what, found: f32, must| {
            Err(ParseCodecError::BadNumber { codec: self.name(), what, found: found.to_string(), must })
        };
        match *self {
            Self::Plain | Self::F16 => Ok(()),
            Self::Qsgd { bits, bucket } => match levels::parts("qsgd", 0, bits, bucket) {
                Err(crate::Error::BadArgument { reason, .. }) => Err(ParseCodecError::BadLevels(reason)),
                _ => Ok(()),
            },
            Self::TopK { fraction } if !(fraction > 0.0 && fraction <= 1.0) => {
                bad("fraction", fraction, "above 0 and at most 1")
            }
            Self::Significance { threshold } if !(threshold > 0.0 && threshold.is_finite()) => {
                bad("threshold", threshold, "finite and above 0")
            }
            Self::TopK { .. } | Self::Significance { .. } => Ok(()),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())?;
        match self {
            Self::Plain | Self::F16 => Ok(()),
            Self::Qsgd { bits, bucket: BUCKET } => write!(out, ":{bits}"),
            Self::Qsgd { bits, bucket } => write!(out, ":{bits},{bucket}"),
            Self::TopK { fraction } => write!(out, ":{fraction}"),
            Self::Significance { threshold } => write!(out, ":{threshold}"),
        }
    }
}

impl FromStr for Codec {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        let (name, numbers) = match text.split_once(':') {
            Some((name, numbers)) => (name, Some(numbers)),
            None => (text, None),
        };
        let needed = |codec, example| numbers.ok_or(ParseCodecError::Missing { codec, example });
        let codec = match name {
            "plain" => Self::Plain,
            "f16" => Self::F16,
            "qsgd" => {
                let (bits, bucket) = match needed("qsgd", "qsgd:4")?.split_once(',') {
                    Some((bits, bucket)) => (bits, number("qsgd", "bucket", bucket)?),
                    None => (numbers.unwrap_or_default(), BUCKET),
                };
                Self::Qsgd { bits: number("qsgd", "bits", bits)?, bucket }
            }
            "top-k" => Self::TopK { fraction: number("top-k", "fraction", needed("top-k", "top-k:0.01")?)? },
            "significance" => {
                let threshold = needed("significance", "significance:0.01")?;
                Self::Significance { threshold: number("significance", "threshold", threshold)? }
            }
            _ => return Err(ParseCodecError::Unknown(text.to_owned())),
        };
        match (codec, numbers) {
            (Self::Plain | Self::F16, Some(found)) => {
                Err(ParseCodecError::TooMuch { codec: codec.name(), found: found.to_owned() })
            }
            _ => codec.check().map(|()| codec),
        }
    }
}

fn number<T: FromStr>(codec: &'static str, what: &'static str, text: &str) -> Result<T, ParseCodecError> {
    text.parse().map_err(|_| ParseCodecError::BadNumber { codec, what, found: text.to_owned(), must: "a number" })
}
