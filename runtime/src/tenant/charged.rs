//! Bytes that are charged before they are allocated, for as long as they are held.

use std::io;

use serde::Serialize;

use super::memory::{Charge, OverLimit};

/// What a buffer first has room for.
const FIRST: usize = 4 << 10;

/// Bytes, and the charge for them.
#[derive(Debug)]
pub struct ChargedBytes {
    bytes: Vec<u8>,
    charge: Charge,
}

impl ChargedBytes {
    /// Bytes that `charge` counts already.
    pub fn new(bytes: Vec<u8>, charge: Charge) -> Self {
        Self { bytes, charge }
    }

    /// A value as JSON, charged on top of whatever `charge` counts. The error is an [`OverLimit`] where there is no room.
    pub fn json(value: &impl Serialize, charge: Charge) -> io::Result<Self> {
        let mut written = Self::new(Vec::new(), charge);
        serde_json::to_writer(&mut written, value)?;
        Ok(written)
    }
}

impl io::Write for ChargedBytes {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let free = self.bytes.capacity() - self.bytes.len();
        if more.len() > free {
            // Twice as much as before, as a vector grows by itself.
            let room = self.bytes.capacity().max(FIRST).max(more.len() - free);
            self.charge.grow(room as u64).map_err(|over: OverLimit| io::Error::other(over))?;
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
    fn json_that_does_not_fit_is_refused_with_the_limit_and_leaves_no_trace() {
        let account = Account::new("memory", 10_000, None);
        let numbers: Vec<u32> = (0..10_000).collect();
        let refused = ChargedBytes::json(&numbers, Charge::none(account.clone())).unwrap_err();
        assert_eq!(refused.downcast::<OverLimit>().unwrap(), OverLimit { name: "memory", limit: 10_000 });
        assert_eq!(account.used(), 0);
    }
}
