//! Bytes that are charged before they are allocated, for as long as they are held.

use std::io;

use serde::Serialize;

use super::memory::{Charge, OverLimit};

/// What a buffer first has room for.
const FIRST: usize = 4 << 10;

/// What an answer may take without a charge: a tenant that has used all its memory can still look at what it has.
const SMALL_ANSWER: usize = 64 << 10;

/// Bytes, and the charge for them.
#[derive(Debug)]
pub struct ChargedBytes {
    bytes: Vec<u8>,
    charge: Charge,
    /// The first so many bytes are not charged.
    free: usize,
}

impl ChargedBytes {
    /// Bytes that `charge` counts already.
    pub fn new(bytes: Vec<u8>, charge: Charge) -> Self {
        Self { bytes, charge, free: 0 }
    }

    /// A value as JSON, charged on top of whatever `charge` counts. The error is an [`OverLimit`] where there is no room.
    pub fn json(value: &impl Serialize, charge: Charge) -> io::Result<Self> {
        let mut written = Self::new(Vec::new(), charge);
        serde_json::to_writer(&mut written, value)?;
        Ok(written)
    }

    /// The same, without a charge for what is small.
    pub fn json_answer(value: &impl Serialize, charge: Charge) -> io::Result<Self> {
        let mut written = Self { free: SMALL_ANSWER, ..Self::new(Vec::new(), charge) };
        serde_json::to_writer(&mut written, value)?;
        Ok(written)
    }
}

impl io::Write for ChargedBytes {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let free = self.bytes.capacity() - self.bytes.len();
        if more.len() > free {
            // Twice as much as before, as a vector grows by itself.
            let before = self.bytes.capacity();
            let room = before.max(FIRST).max(more.len() - free);
            let charged = (before + room).saturating_sub(self.free.max(before));
            self.charge.grow(charged as u64).map_err(|over: OverLimit| io::Error::other(over))?;
            self.bytes.reserve_exact(free + room);
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Account;

    #[test]
    fn json_is_charged_for_as_long_as_it_is_held() {
        let account = Account::new("memory", 1 << 20, None);
        let numbers: Vec<u32> = (0..10_000).collect();
        let json = ChargedBytes::json(&numbers, Charge::none(account.clone())).unwrap();
        assert_eq!(json.as_ref(), serde_json::to_vec(&numbers).unwrap());
        assert_eq!(account.used(), json.bytes.capacity() as u64);
        drop(json);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn an_answer_is_charged_if_it_is_not_small() {
        let account = Account::new("memory", 1 << 20, None);
        let answer = |numbers: u32| {
            let numbers: Vec<u32> = (0..numbers).collect();
            ChargedBytes::json_answer(&numbers, Charge::none(account.clone()))
        };
        let small = answer(5_000).unwrap();
        assert_eq!(account.used(), 0);
        let large = answer(50_000).unwrap();
        assert_eq!(account.used(), (large.bytes.capacity() - SMALL_ANSWER) as u64);
        assert!(answer(500_000).unwrap_err().downcast::<OverLimit>().is_ok());
        drop((small, large));
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn json_that_does_not_fit_is_refused_with_the_limit_and_leaves_no_trace() {
        let account = Account::new("memory", 10_000, None);
        let numbers: Vec<u32> = (0..10_000).collect();
        let refused = ChargedBytes::json(&numbers, Charge::none(account.clone())).unwrap_err();
        let over = refused.downcast::<OverLimit>().unwrap();
        assert_eq!((over.name, over.limit), ("memory", 10_000));
        assert_eq!(account.used(), 0);
    }
}
