//! API keys: `weft_` + 16 hexadecimal digits that find the key + 64 that prove it.
//!
//! The proof is 256 random bits, so a plain SHA-256 of it is safe to store: there is nothing to guess. It is compared in
//! constant time. The key itself is shown once, when it is made, and kept nowhere.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::digest::{Digest, hex};

const PREFIX: &str = "weft_";
const ID_DIGITS: usize = 16;
const PROOF_DIGITS: usize = 64;

/// The part of a key that finds its record; not secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for KeyId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A key as its owner holds it. Deliberately neither `Debug` nor `Serialize`.
pub struct Key {
    id: KeyId,
    proof: String,
}

/// A key that somebody presents, where it was read: every request has one, so nothing of it is copied.
pub struct Presented<'a> {
    id: &'a str,
    proof: &'a str,
}

/// What is kept of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyHash(Digest);

impl Key {
    /// A new key from the operating system's randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; (ID_DIGITS + PROOF_DIGITS) / 2];
        getrandom::fill(&mut bytes)?;
        let digits = hex(&bytes);
        let (id, proof) = digits.split_at(ID_DIGITS);
        Ok(Self { id: KeyId(id.to_owned()), proof: proof.to_owned() })
    }

    pub fn id(&self) -> &KeyId {
        &self.id
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash(Digest::of(self.proof.as_bytes()))
    }

    /// The key as its owner will send it.
    pub fn reveal(&self) -> impl fmt::Display + '_ {
        format!("{PREFIX}{}{}", self.id.0, self.proof)
    }
}

impl<'a> Presented<'a> {
    /// Reads what a caller presented; `None` if it cannot be a key.
    pub fn parse(text: &'a str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        if digits.len() != ID_DIGITS + PROOF_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let (id, proof) = digits.split_at(ID_DIGITS);
        Some(Self { id, proof })
    }

    pub fn id(&self) -> &str {
        self.id
    }
}

impl KeyHash {
    pub fn matches(&self, key: &Presented<'_>) -> bool {
        self.0.as_bytes().ct_eq(Digest::of(key.proof.as_bytes()).as_bytes()).into()
    }

    /// A hash that no key matches, to spend the same time on an unknown id as on a wrong proof.
    pub fn of_nobody() -> Self {
        Self(Digest::of(b"nobody"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_matches_its_own_hash_only() {
        let (ours, theirs) = (Key::generate().unwrap(), Key::generate().unwrap());
        let revealed = ours.reveal().to_string();
        let parsed = Presented::parse(&revealed).unwrap();
        assert!(ours.hash().matches(&parsed));
        assert!(!theirs.hash().matches(&parsed));
        assert!(!KeyHash::of_nobody().matches(&parsed));
    }

    #[test]
    fn text_that_is_not_a_key_is_refused() {
        for bad in ["", "weft_", "weft_zz", &format!("weft_{}", "g".repeat(80)), &"a".repeat(85)] {
            assert!(Presented::parse(bad).is_none(), "{bad}");
        }
    }
}
