//! Sizes and spans of time as people write them: `512MiB`, `90s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes; `64KiB`, `512MiB`, `2GiB`, or plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A span of time; `250ms`, `30s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Text that is not a size or a span.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadUnit {
    #[error("`{0}` is not a size: write bytes, or a number and KiB, MiB, GiB or TiB, such as `512MiB`")]
    Size(String),
    #[error("`{0}` is not a span of time: write a number and ms, s, m or h, such as `30s`, at most 8760h")]
    Span(String),
}

const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];
/// A year, in milliseconds: more than anybody waits, and less than a clock overflows at.
const MAX_SPAN: u64 = 8_760 * 3_600_000;
const SPANS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A whole number and one of the units.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (text[..digits].parse::<u64>().ok()?, text[digits..].trim());
    let scale = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1;
    number.checked_mul(scale)
}

/// The largest unit that divides it.
fn format(value: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().find(|(_, scale)| value != 0 && value.is_multiple_of(*scale));
    let (name, scale) = unit.or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{name}", value / scale)
}

impl FromStr for Size {
    type Err = BadUnit;

    fn from_str(text: &str) -> Result<Self, BadUnit> {
        parse(text, &SIZES).map(Self).ok_or_else(|| BadUnit::Size(text.to_owned()))
    }
}

impl FromStr for Span {
    type Err = BadUnit;

    fn from_str(text: &str) -> Result<Self, BadUnit> {
        let milliseconds = parse(text, &SPANS).filter(|&milliseconds| milliseconds <= MAX_SPAN);
        let milliseconds = milliseconds.ok_or_else(|| BadUnit::Span(text.to_owned()))?;
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format(self.0, &SIZES))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPANS))
    }
}

/// What a configuration file may hold: the text, or plain bytes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_round_trip() {
        for text in ["0", "17", "64KiB", "512MiB", "3GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["0ms", "250ms", "90s", "2m", "1h"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("5 mib".parse::<Size>().unwrap(), Size(5 << 20));
    }

    #[test]
    fn other_text_is_refused() {
        for bad in ["", "MiB", "-1", "1.5GiB", "12XB", "99999999TiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        for bad in ["", "10", "s", "5 days", "8761h"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
