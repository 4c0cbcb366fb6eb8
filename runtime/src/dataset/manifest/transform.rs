//! Transforms as people write them: `standardise`, `minmax:0,1`, `normalise`.

use std::fmt;
use std::str::FromStr;

use super::Transform;

/// Text that names no transform.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadTransform {
    #[error("there is no transform `{0}`: use `standardise`, `minmax:lo,hi`, `normalise` or `none`")]
    Unknown(String),
    #[error("`{0}` needs two numbers, the lower one first, as in `minmax:0,1`")]
    Bounds(String),
}

impl Transform {
    /// Whether its numbers, if any, make sense.
    pub(crate) fn is_valid(self) -> bool {
        match self {
            Self::MinMax { low, high } => low.is_finite() && high.is_finite() && low < high,
            Self::None | Self::Standardise | Self::Normalise => true,
        }
    }

    /// Whether it turns zeros into something else.
    pub(crate) fn fills_zeros(self) -> bool {
        matches!(self, Self::Standardise | Self::MinMax { .. })
    }
}

impl FromStr for Transform {
    type Err = BadTransform;

    fn from_str(text: &str) -> Result<Self, BadTransform> {
        let quoted = || text.chars().take(80).collect();
        if let Some(bounds) = text.strip_prefix("minmax:") {
            let number = |text: &str| text.trim().parse().ok();
            let parsed = bounds.split_once(',').and_then(|(low, high)| number(low).zip(number(high)));
            return parsed
                .map(|(low, high)| Self::MinMax { low, high })
                .filter(|transform| transform.is_valid())
                .ok_or_else(|| BadTransform::Bounds(quoted()));
        }
        match text {
            "none" => Ok(Self::None),
            "standardise" => Ok(Self::Standardise),
            "normalise" => Ok(Self::Normalise),
            "minmax" => Err(BadTransform::Bounds(quoted())),
            _ => Err(BadTransform::Unknown(quoted())),
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Standardise => f.write_str("standardise"),
            Self::MinMax { low, high } => write!(f, "minmax:{low},{high}"),
            Self::Normalise => f.write_str("normalise"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_written() {
        for text in ["none", "standardise", "normalise", "minmax:0,1", "minmax:-1.5,2"] {
            assert_eq!(text.parse::<Transform>().map(|transform| transform.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn bounds_must_be_two_numbers_in_order() {
        for text in
            ["minmax", "minmax:", "minmax:1", "minmax:1,0", "minmax:0,0", "minmax:a,b", "minmax:0,inf", "minmax:nan,1"]
        {
            assert!(matches!(text.parse::<Transform>(), Err(BadTransform::Bounds(_))), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused_with_those_that_exist() {
        let error = "standardize".parse::<Transform>().unwrap_err().to_string();
        assert!(error.contains("`standardize`") && error.contains("`standardise`"), "{error}");
    }
}
