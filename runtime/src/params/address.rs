//! Where a node's store is, as the operator says it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of a Redis, or nothing for the node's own store. A password in it is never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct StoreAddress(String);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is no store: leave it empty, or use redis://, rediss://, redis+cluster:// or rediss+cluster://HOST:PORT"
)]
pub struct BadAddress(String);

impl StoreAddress {
    const SCHEMES: [&str; 4] = ["redis", "rediss", "redis+cluster", "rediss+cluster"];

    /// With its password; `None` for the node's own store.
    pub fn remote(&self) -> Option<&str> {
        if self.0.is_empty() { None } else { Some(&self.0) }
    }
}

/// An address as it may be shown.
pub(super) fn without_password(address: &str) -> String {
    match address.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => address.to_owned(),
    }
}

impl FromStr for StoreAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let has_host = |(scheme, rest): (&str, &str)| Self::SCHEMES.contains(&scheme) && !rest.is_empty();
        match text.is_empty() || text.split_once("://").is_some_and(has_host) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadAddress(without_password(text).chars().take(80).collect())),
        }
    }
}

impl TryFrom<String> for StoreAddress {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}

impl Serialize for StoreAddress {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.to_string())
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&without_password(&self.0))
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let address: StoreAddress = "redis://me:p@ss@host:1/2".parse().unwrap();
        assert_eq!(address.to_string(), "redis://host:1/2");
        assert_eq!(format!("{address:?}"), "redis://host:1/2");
        assert_eq!(address.remote(), Some("redis://me:p@ss@host:1/2"));
    }

    #[test]
    fn what_is_no_store_is_refused() {
        assert_eq!("".parse::<StoreAddress>().unwrap().remote(), None);
        for bad in ["localhost", "http://a", "redis://", "redis:6379"] {
            assert!(bad.parse::<StoreAddress>().is_err(), "{bad}");
        }
    }
}
