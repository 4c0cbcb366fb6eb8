//! Names that people choose: of tenants and of functions.
//!
//! A name is a DNS label, so that it can stand in a URL, a file name and a host name without escaping.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How long a name may be.
pub const MAX_NAME: usize = 63;

/// A checked name: lower-case letters, digits and inner hyphens. Every invocation has a few, so they share their text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A name that is not a DNS label.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a name: use 1 to {MAX_NAME} lower-case letters, digits and inner hyphens")]
pub struct BadName(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text is a name.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text.bytes().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if is_name(text) { Ok(Self(text.into())) } else { Err(BadName(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_labels_are_names() {
        for good in ["a", "echo", "column-stats", "3d", &"x".repeat(MAX_NAME)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "-a", "a-", "Echo", "a_b", "a/b", "..", "é", "a b", &"x".repeat(MAX_NAME + 1)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
