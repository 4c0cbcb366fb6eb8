//! Where one part of a round is found in a channel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of one part: whose it is, of which shard, and of which round.
///
/// The claim is in the name, so that what a lost worker still sends never takes the place of what its successor has sent.
/// Slots are ordered by round first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
    pub round: u64,
    /// 0 is a worker's own part; `l` is the result of a merge of layer `l`.
    pub layer: u32,
    pub shard: u32,
    /// The worker that puts it there.
    pub worker: u32,
    pub claim: u64,
}

/// What is not the name of a slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a slot, such as `12/0.3.7.1`")]
pub struct BadSlot(String);

/// `ROUND/LAYER.SHARD.WORKER.CLAIM`.
impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, layer, shard, worker, claim } = self;
        write!(out, "{round}/{layer}.{shard}.{worker}.{claim}")
    }
}

impl FromStr for Slot {
    type Err = BadSlot;

    /// As it is shown; leading zeros are allowed.
    fn from_str(text: &str) -> Result<Self, BadSlot> {
        let read = || {
            let (round, rest) = text.split_once('/')?;
            let mut numbers = rest.splitn(4, '.');
            let slot = Self {
                round: number(round)?,
                layer: number(numbers.next()?)?,
                shard: number(numbers.next()?)?,
                worker: number(numbers.next()?)?,
                claim: number(numbers.next()?)?,
            };
            Some(slot)
        };
        read().ok_or_else(|| BadSlot(text.chars().take(80).collect()))
    }
}

/// Digits alone: what stands for a number in a name has no sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_shown() {
        let slot = Slot { round: 12, layer: 0, shard: 3, worker: 7, claim: 1 };
        assert_eq!(slot.to_string(), "12/0.3.7.1");
        let last = Slot { round: u64::MAX, layer: u32::MAX, shard: u32::MAX, worker: u32::MAX, claim: u64::MAX };
        for slot in [slot, last] {
            assert_eq!(slot.to_string().parse(), Ok(slot));
        }
        assert_eq!("0012/0.3.7.1".parse(), Ok(slot));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in [
            "",
            "/",
            "12",
            "12/0.3.7",
            "12/0.3.7.1.2",
            "+12/0.3.7.1",
            "12/0.3.7.-1",
            "12/0..7.1",
            "12/0.3.4294967296.1",
        ] {
            assert!(bad.parse::<Slot>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rounds_come_before_everything_else() {
        let early = Slot { round: 1, layer: 9, shard: 9, worker: 9, claim: 9 };
        let late = Slot { round: 2, layer: 0, shard: 0, worker: 0, claim: 0 };
        assert!(early < late);
    }
}
