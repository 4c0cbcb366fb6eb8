//! What is trained on when a data set has grown: all new samples, and some of those that were there before.
//!
//! Old samples are picked within each block, by the seed and the epoch: every block gives its part, so that what is
//! replayed is spread over all that there was. To everybody who divides samples among workers, what is picked is a
//! [`Split`] like any other, whose old blocks have fewer samples; only who reads a block needs to know which rows they are.

use std::sync::Arc;

use weft_core::follow::replayed;

use super::manifest::{BlockRef, Split};
use super::shard::{Key, Permutation};

/// Which rows of each block of a split were picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picks {
    seed: u64,
    /// How many samples each block has in truth.
    whole: Arc<[u32]>,
}

/// A split that has grown, as it is trained on.
#[derive(Clone, Debug)]
pub struct Picked {
    /// Old blocks with as many samples as were picked, and all new ones.
    pub split: Split,
    /// The new blocks alone.
    pub fresh: Split,
    pub picks: Picks,
}

/// A split that has not grown out of what was said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its first {old} samples are not those of the version before: they end within a block")]
pub struct NotGrown {
    pub old: u64,
}

impl Picks {
    /// Picks a share of the first `old` samples of a split, and all others.
    pub fn of(split: &Split, old: u64, share: f64, seed: u64) -> Result<Picked, NotGrown> {
        let (mut blocks, mut whole, mut fresh) = (Vec::new(), Vec::new(), Split::default());
        let mut before = 0;
        for block in &split.blocks {
            let end = before + u64::from(block.count);
            let count = match before < old {
                true if end > old => return Err(NotGrown { old }),
                // No more than the block has.
                true => (replayed(end, share) - replayed(before, share)).min(block.count.into()) as u32,
                false => {
                    fresh.blocks.push(block.clone());
                    block.count
                }
            };
            before = end;
            if count > 0 {
                blocks.push(BlockRef { count, ..block.clone() });
                whole.push(block.count);
            }
        }
        if before < old {
            return Err(NotGrown { old });
        }
        let count = |blocks: &[BlockRef]| blocks.iter().map(|block| u64::from(block.count)).sum();
        fresh.count = count(&fresh.blocks);
        // How many there are of each class is not known without reading them; that there are classes is.
        let classes = split.classes.clone();
        fresh.classes.clone_from(&classes);
        let split = Split { count: count(&blocks), blocks, classes };
        Ok(Picked { split, fresh, picks: Self { seed, whole: whole.into() } })
    }

    /// The split with the blocks as they are kept.
    pub fn kept(&self, split: &Split) -> Split {
        let mut kept = split.clone();
        for (block, whole) in kept.blocks.iter_mut().zip(&*self.whole) {
            block.count = *whole;
        }
        kept.count = self.whole.iter().map(|&whole| u64::from(whole)).sum();
        kept
    }

    /// For each block the order whose first rows are picked in an epoch; none where all are.
    pub fn orders(&self, split: &Split, epoch: u64) -> Vec<Option<Permutation>> {
        let key = Key::new(self.seed).part(epoch).part(3);
        let order = |(index, (block, &whole)): (usize, (&BlockRef, &u32))| {
            (block.count < whole).then(|| Permutation::new(whole.into(), key.part(index as u64)))
        };
        split.blocks.iter().zip(&*self.whole).enumerate().map(order).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::digest::Digest;

    fn split(counts: &[u32]) -> Split {
        let block = |&count: &u32| BlockRef { digest: Digest::of(&count.to_le_bytes()), count, bytes: 100 };
        let blocks: Vec<BlockRef> = counts.iter().map(block).collect();
        Split { count: counts.iter().map(|&count| u64::from(count)).sum(), blocks, classes: vec![1, 2] }
    }

    #[test]
    fn every_old_block_gives_its_part_and_every_new_one_all() {
        let picked = Picks::of(&split(&[100, 50, 30]), 150, 0.2, 1).unwrap();
        let counts: Vec<u32> = picked.split.blocks.iter().map(|block| block.count).collect();
        assert_eq!((counts, picked.split.count), (vec![20, 10, 30], 60));
        assert_eq!((picked.fresh.blocks.len(), picked.fresh.count), (1, 30));
        assert_eq!(picked.picks.kept(&picked.split), split(&[100, 50, 30]));
        let none = Picks::of(&split(&[100, 50, 30]), 150, 0.0, 1).unwrap();
        assert_eq!((none.split.blocks.len(), none.split.count), (1, 30));
        let all = Picks::of(&split(&[100, 50, 30]), 150, 1.0, 1).unwrap();
        assert!(all.split.count == 180 && all.picks.orders(&all.split, 0).iter().all(Option::is_none));
    }

    #[test]
    fn what_is_picked_follows_from_the_seed_and_the_epoch() {
        let picked = |seed| Picks::of(&split(&[1000, 10]), 1000, 0.5, seed).unwrap();
        let rows = |seed, epoch| -> HashSet<u64> {
            let Picked { split, picks, .. } = picked(seed);
            let orders = picks.orders(&split, epoch);
            let order = orders[0].as_ref().unwrap();
            (0..u64::from(split.blocks[0].count)).map(|row| order.at(row)).collect()
        };
        assert_eq!((rows(1, 0).len(), rows(1, 0)), (500, rows(1, 0)));
        assert!(rows(1, 0) != rows(1, 1) && rows(1, 0) != rows(2, 0));
    }

    #[test]
    fn a_split_that_has_not_grown_out_of_the_one_before_is_refused() {
        assert_eq!(Picks::of(&split(&[100, 50]), 120, 0.5, 1).unwrap_err(), NotGrown { old: 120 });
        assert_eq!(Picks::of(&split(&[100, 50]), 151, 0.5, 1).unwrap_err(), NotGrown { old: 151 });
    }
}
