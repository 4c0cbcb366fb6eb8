//! Workers and a channel that carry numbers, so that it shows when something is merged twice or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::*;
use crate::sync::topology::shard_range;

/// Of a contribution.
const ELEMENTS: usize = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub round: u64,
    pub layer: u32,
    pub shard: u32,
    pub who: Who,
}

/// What a worker was told to do and has not done yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    Start(Who),
    Train {
        who: Who,
        round: u64,
        generation: u32,
        plan: Option<Arc<MergePlan>>,
    },
    Merge {
        who: Who,
        round: u64,
        merge: usize,
        generation: u32,
        parts: Vec<MergePart>,
        total: u64,
        plan: Arc<MergePlan>,
    },
}

impl Job {
    /// The job that an action is, unless it is none of a worker's.
    pub fn of(action: &Action, plan: Option<&Arc<MergePlan>>) -> Option<Self> {
        let plan = plan.cloned();
        match action.clone() {
            Action::Start(who) => Some(Self::Start(who)),
            Action::Assign { who, round, generation } => Some(Self::Train { who, round, generation, plan }),
            Action::Merge { who, round, merge, generation, parts, total } => {
                Some(Self::Merge { who, round, merge, generation, parts, total, plan: plan.unwrap() })
            }
            _ => None,
        }
    }

    /// What is asked for: the answer if all goes well, apart from the samples.
    pub fn answer(&self) -> Event {
        match *self {
            Self::Start(who) => Event::Ready(who),
            Self::Train { who, round, generation, .. } => Event::Trained { who, round, generation, samples: 0 },
            Self::Merge { who, round, merge, generation, .. } => Event::Merged { who, round, merge, generation },
        }
    }

    /// What it needs.
    pub fn parts(&self) -> &[MergePart] {
        match self {
            Self::Merge { parts, .. } => parts,
            _ => &[],
        }
    }

    pub fn who(&self) -> Who {
        match self {
            Self::Start(who) | Self::Train { who, .. } | Self::Merge { who, .. } => *who,
        }
    }
}

/// Distinct digits for every worker: no two sets of contributions have the same sum, nor one that counts some twice.
fn value(worker: u32, round: u64, element: usize) -> i64 {
    64_i64.pow(worker) * (1 + (round as i64 + element as i64) % 3)
}

/// Some contributions have no samples.
pub fn samples(worker: u32, round: u64) -> u64 {
    (u64::from(worker) + round) % 4
}

/// The sums of so many workers' shards, each times its samples.
fn expected(round: u64, shard: u32, shards: u32, contributions: &[(u32, u64)]) -> Vec<i64> {
    let sum = |element| contributions.iter().map(|&(worker, n)| n as i64 * value(worker, round, element)).sum();
    shard_range(shard, shards, ELEMENTS, 1).map(sum).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Field {
    pub channel: BTreeMap<Slot, Vec<i64>>,
    /// What workers have in their own memory only.
    pub kept: BTreeMap<Slot, Vec<i64>>,
}

impl Field {
    /// What the worker had in its memory is gone.
    pub fn forget(&mut self, who: Who) {
        self.kept.retain(|slot, _| slot.who != who);
    }

    /// Does a job, and says what the worker tells. One that was given up still fills the channel, under its own claim.
    pub fn execute(&mut self, job: &Job, is_alive: bool) -> Event {
        match job {
            Job::Start(who) => Event::Ready(*who),
            Job::Train { who, round, generation, plan } => {
                let samples = samples(who.worker, *round);
                for shard in 0..plan.as_ref().map_or(0, |plan| plan.shards) {
                    let plan = plan.as_ref().unwrap();
                    let range = shard_range(shard, plan.shards, ELEMENTS, 1);
                    let part = range.map(|element| value(who.worker, *round, element)).collect();
                    let keeps = plan.keeps(Source::Worker(who.worker), shard, who.worker);
                    // Nobody needs to put what weighs nothing.
                    if samples > 0 {
                        self.put(Slot { round: *round, layer: 0, shard, who: *who }, part, keeps, is_alive);
                    }
                }
                Event::Trained { who: *who, round: *round, generation: *generation, samples }
            }
            Job::Merge { who, round, merge, generation, parts, total, plan } => {
                let planned = &plan.merges[*merge];
                let (round, shard, who) = (*round, planned.shard, *who);
                let mut sums = vec![0; shard_range(shard, plan.shards, ELEMENTS, 1).len()];
                let mut sources = Vec::new();
                for part in parts.iter().filter(|part| part.samples > 0) {
                    let slot = Slot { round, layer: part.layer, shard, who: part.who };
                    let own = self.kept.get(&slot).filter(|_| part.who == who);
                    let Some(values) = own.or_else(|| self.channel.get(&slot)) else {
                        sources.push(part.source);
                        continue;
                    };
                    let weight = if part.layer == 0 { part.samples as i64 } else { 1 };
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
                }
                assert_eq!(parts.iter().map(|part| part.samples).sum::<u64>(), *total);
                let (merge, generation) = (*merge, *generation);
                if !sources.is_empty() {
                    return Event::Missing { who, round, merge, generation, sources };
                }
                let keeps = plan.keeps(Source::Merge(merge), shard, who.worker);
                self.put(Slot { round, layer: planned.layer, shard, who }, sums, keeps, is_alive);
                Event::Merged { who, round, merge, generation }
            }
        }
    }

    fn put(&mut self, slot: Slot, values: Vec<i64>, keeps: bool, is_alive: bool) {
        if !keeps {
            self.channel.insert(slot, values);
        } else if is_alive {
            self.kept.insert(slot, values);
        }
    }

    /// Checks that every result is that of exactly these contributions. Returns a merge whose result is not there.
    pub fn check(&self, plan: &MergePlan, round: u64, of: &[(u32, u64)], results: &[MergeResult]) -> Option<usize> {
        for shard in 0..plan.shards {
            assert!(results.iter().any(|result| result.shard == shard), "shard {shard} has no result");
        }
        for result in results {
            let planned = &plan.merges[result.merge];
            assert!(planned.shard == result.shard && plan.consumers(result.merge).is_empty());
            let slot = Slot { round, layer: planned.layer, shard: planned.shard, who: result.who };
            let Some(found) = self.channel.get(&slot) else { return Some(result.merge) };
            assert_eq!(*found, expected(round, planned.shard, plan.shards, of), "{result:?} of {of:?}");
        }
        None
    }
}
