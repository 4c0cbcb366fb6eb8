//! Under what the parameter store knows a tenant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::hex;
use crate::names::Name;

/// Begins an id that was drawn: no name has a capital letter, so no id is ever somebody's name.
const DRAWN: char = 'T';

/// The digits of an id that was drawn.
const DIGITS: usize = 32;

/// A tenant's identity in the parameter store, on this node and in a Redis that several nodes share. Unlike a name it is
/// never given to a second tenant.
///
/// Tenants of data directories that are older than these ids have their name for one, so that their values stay where
/// they are. No later tenant gets such an id, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoreId(Box<str>);

/// What is no id of a tenant's values.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no id of a tenant's store: `weft tenant show` tells the `store` of a tenant")]
pub struct BadStoreId(String);

impl StoreId {
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; DIGITS / 2];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{DRAWN}{}", hex(&bytes)).into()))
    }

    /// Of a tenant whose record is older than these ids.
    pub fn of_old_tenant(name: &Name) -> Self {
        Self(name.as_str().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for StoreId {
    type Err = BadStoreId;

    fn from_str(text: &str) -> Result<Self, BadStoreId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_drawn =
            text.strip_prefix(DRAWN).is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit));
        match is_drawn || text.parse::<Name>().is_ok() {
            true => Ok(Self(text.into())),
            false => Err(BadStoreId(text.chars().take(80).collect())),
        }
    }
}

impl TryFrom<String> for StoreId {
    type Error = BadStoreId;

    fn try_from(text: String) -> Result<Self, BadStoreId> {
        text.parse()
    }
}

impl From<StoreId> for String {
    fn from(id: StoreId) -> Self {
        id.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_nobodys_name_and_is_read_again() {
        let [one, two] = [StoreId::random().unwrap(), StoreId::random().unwrap()];
        assert_ne!(one, two);
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
        assert!(one.as_str().parse::<Name>().is_err());
    }

    #[test]
    fn what_could_lead_elsewhere_is_no_id() {
        for bad in ["", "T", "Tabc", "a:b", "{a}", "../b", "T0123456789abcdef0123456789ABCDEF"] {
            assert!(bad.parse::<StoreId>().is_err(), "{bad}");
        }
        assert_eq!("ada".parse(), Ok(StoreId::of_old_tenant(&"ada".parse().unwrap())));
    }
}
