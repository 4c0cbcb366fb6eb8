//! Topologies: who merges what.
//!
//! A topology is the shape; [`plan`] makes of it, for a number of workers, the merges of one round: which worker merges
//! which parts of which shard, after which other merges. It is the same for every round and every machine, so that only
//! the coordinator needs to say when.
//!
//! - `memory`: the coordinator merges; workers merge nothing
//! - `leader`: worker 0 merges all (LambdaML, section 3.2.3, "AllReduce")
//! - `scatter`: each worker merges one shard of the vector (LambdaML, section 3.2.3, "ScatterReduce")
//! - `tree`: groups of workers merge, then groups of groups (Feng et al., section III-C): see [`tree`]
//! - `peers`: every worker merges everything for itself
//!
//! Whatever merges its own part keeps it in memory, and puts into the channel only what another one needs:
//! [`MergePlan::keeps`].

use std::fmt::{self, Display};
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub mod tree;

pub use tree::TreeShape;

/// Shards that a vector may be cut into.
pub const MAX_SHARDS: u32 = 65_536;

/// Parts that the merges of one round may take, all together. It is what 1,024 peers need.
pub const MAX_PARTS: u64 = 1 << 20;

/// By which way contributions become one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Topology {
    /// The coordinator merges.
    #[default]
    Memory,
    /// Worker 0 merges.
    Leader,
    /// The vector is cut into shards, by default as many as there are workers, who merge them in turn.
    Scatter { shards: Option<u32> },
    /// Groups merge, then groups of groups.
    Tree(TreeShape),
    /// Every worker merges everything for itself.
    Peers,
}

/// Why something is no topology, or none for so many workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    #[error(
        "`{0}` is no topology: use `memory`, `leader`, `scatter`, `scatter:SHARDS`, `tree`, `tree:paper`, \
         `tree:1,5,22,100` or `peers`"
    )]
    Unknown(String),
    #[error("`{0}` is no number of shards: use a whole number from 1 to {MAX_SHARDS}, as in `scatter:16`")]
    Shards(String),
    #[error(
        "`{0}` are no layers of a tree: use at most {most} whole numbers that grow, from 1 to the number of workers, \
         as in `tree:1,5,22,100` for 100 workers",
        most = tree::MAX_LAYERS
    )]
    Layers(String),
    #[error(
        "the layers of the tree end with {last}, and there are {workers} workers: let them end with {workers}, \
         or use `tree`, which fits any number of workers"
    )]
    LastLayer { last: u32, workers: u32 },
    #[error("there is nothing to merge without a worker")]
    NoWorkers,
    #[error(
        "`{topology}` with {workers} workers would move {parts} parts in every round, more than the {MAX_PARTS} that \
         are allowed: use fewer workers or shards, or `tree`"
    )]
    TooManyParts { topology: Topology, workers: u32, parts: u64 },
}

/// Where a merge takes one of its parts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// The part of a worker's own contribution.
    Worker(u32),
    /// The result of another merge, by its index.
    Merge(usize),
}

/// One merge of a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Merge {
    /// From 1: merges of layer 1 take workers' own parts, others the results of the layer before.
    pub layer: u32,
    pub shard: u32,
    /// Which worker merges.
    pub by: u32,
    /// What it merges, in this order, which is the order of the workers.
    pub from: Vec<Source>,
}

/// The merges of one round, each after those that it takes results of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MergePlan {
    /// How many workers it is made for.
    pub workers: u32,
    pub shards: u32,
    pub merges: Vec<Merge>,
    /// By merge: which others take its result.
    consumers: Vec<Vec<usize>>,
    /// By shard: the merges whose results no other merge takes.
    results: Vec<Vec<usize>>,
    /// By shard: the merges that take workers' own parts.
    first: Vec<Vec<usize>>,
}

/// The merges of one round among so many workers. One worker has nobody to merge with, whatever the topology is.
pub fn plan(topology: &Topology, workers: u32) -> Result<MergePlan, TopologyError> {
    let all = || (0..workers).map(Source::Worker).collect::<Vec<_>>();
    let within = |shards: u32, parts: u64| match parts {
        parts if parts <= MAX_PARTS => Ok(shards),
        parts => Err(TopologyError::TooManyParts { topology: topology.clone(), workers, parts }),
    };
    let wide = u64::from(workers);
    match topology {
        _ if workers == 0 => Err(TopologyError::NoWorkers),
        _ if workers == 1 => Ok(MergePlan::new(workers, 1, Vec::new())),
        Topology::Memory => Ok(MergePlan::new(workers, 1, Vec::new())),
        Topology::Leader => {
            let shards = within(1, wide)?;
            Ok(MergePlan::new(workers, shards, vec![Merge { layer: 1, shard: 0, by: 0, from: all() }]))
        }
        Topology::Scatter { shards } => {
            let shards = shards.unwrap_or(workers).max(1);
            let shards = within(shards, u64::from(shards) * wide)?;
            let merge = |shard| Merge { layer: 1, shard, by: shard % workers, from: all() };
            Ok(MergePlan::new(workers, shards, (0..shards).map(merge).collect()))
        }
        Topology::Tree(shape) => {
            let shards = within(1, shape.most_parts(workers))?;
            Ok(MergePlan::new(workers, shards, shape.merges(workers)?))
        }
        Topology::Peers => {
            let shards = within(1, wide * wide)?;
            let merge = |by| Merge { layer: 1, shard: 0, by, from: all() };
            Ok(MergePlan::new(workers, shards, (0..workers).map(merge).collect()))
        }
    }
}

impl MergePlan {
    fn new(workers: u32, shards: u32, merges: Vec<Merge>) -> Self {
        let mut consumers = vec![Vec::new(); merges.len()];
        for (index, merge) in merges.iter().enumerate() {
            for source in &merge.from {
                if let Source::Merge(before) = source {
                    consumers[*before].push(index);
                }
            }
        }
        let (mut results, mut first) = (vec![Vec::new(); shards as usize], vec![Vec::new(); shards as usize]);
        for (index, merge) in merges.iter().enumerate() {
            if consumers[index].is_empty() {
                results[merge.shard as usize].push(index);
            }
            if merge.layer == 1 {
                first[merge.shard as usize].push(index);
            }
        }
        Self { workers, shards, merges, consumers, results, first }
    }

    /// Which merge's result a worker takes for a shard: its own if it makes one, as peers do, and else that of all.
    pub fn result(&self, worker: u32, shard: u32) -> Option<usize> {
        match self.results(shard) {
            [] => None,
            [only] => Some(*only),
            many => many.iter().copied().find(|&merge| self.merges[merge].by == worker),
        }
    }

    /// The merges whose results are the shard's: one, or one of every peer.
    pub fn results(&self, shard: u32) -> &[usize] {
        self.results.get(shard as usize).map_or(&[], Vec::as_slice)
    }

    /// The merges that take a merge's result.
    pub fn consumers(&self, merge: usize) -> &[usize] {
        self.consumers.get(merge).map_or(&[], Vec::as_slice)
    }

    /// Whether `worker`, who has made this part or result, keeps it in memory only: all merges that take it are its
    /// own. Everything else has to be put into the channel, above all the results that everybody takes.
    pub fn keeps(&self, source: Source, shard: u32, worker: u32) -> bool {
        let is_own = |merge: &usize| self.merges[*merge].by == worker;
        match source {
            Source::Worker(_) => {
                let first = self.first.get(shard as usize).map_or(&[][..], Vec::as_slice);
                let mut takers = first.iter().filter(|&&merge| self.merges[merge].from.contains(&source)).peekable();
                takers.peek().is_some() && takers.all(is_own)
            }
            Source::Merge(merge) => !self.consumers(merge).is_empty() && self.consumers(merge).iter().all(is_own),
        }
    }

    /// Whether each merge takes, by whatever way, something of this worker's.
    pub fn descends_from(&self, worker: u32) -> Vec<bool> {
        let mut descends = vec![false; self.merges.len()];
        for (index, merge) in self.merges.iter().enumerate() {
            descends[index] = merge.from.iter().any(|source| match *source {
                Source::Worker(of) => of == worker,
                Source::Merge(before) => descends[before],
            });
        }
        descends
    }
}

/// Which elements of a vector a shard has: equally many, the first ones one more where it does not come out even.
/// Boundaries are rounded to multiples of `align`, for codecs whose buckets must not be cut.
pub fn shard_range(shard: u32, shards: u32, elements: usize, align: usize) -> Range<usize> {
    let (shards, align) = (shards.max(1) as usize, align.max(1));
    let (each, more) = (elements / shards, elements % shards);
    let boundary = |shard: usize| {
        if shard >= shards {
            return elements;
        }
        let exact = shard * each + shard.min(more);
        let past = exact % align;
        let rounded = if past * 2 < align { Some(exact - past) } else { exact.checked_add(align - past) };
        rounded.map_or(elements, |rounded| rounded.min(elements))
    };
    boundary(shard as usize)..boundary((shard as usize).saturating_add(1))
}

impl Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Leader => f.write_str("leader"),
            Self::Scatter { shards: None } => f.write_str("scatter"),
            Self::Scatter { shards: Some(shards) } => write!(f, "scatter:{shards}"),
            Self::Tree(TreeShape::Auto) => f.write_str("tree"),
            Self::Tree(shape) => write!(f, "tree:{shape}"),
            Self::Peers => f.write_str("peers"),
        }
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        match text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value))) {
            ("memory", None) => Ok(Self::Memory),
            ("leader", None) => Ok(Self::Leader),
            ("scatter", None) => Ok(Self::Scatter { shards: None }),
            ("scatter", Some(shards)) => match shards.parse() {
                Ok(count @ 1..=MAX_SHARDS) => Ok(Self::Scatter { shards: Some(count) }),
                _ => Err(TopologyError::Shards(shards.to_owned())),
            },
            ("tree", shape) => Ok(Self::Tree(shape.map_or(Ok(TreeShape::Auto), str::parse)?)),
            ("peers", None) => Ok(Self::Peers),
            _ => Err(TopologyError::Unknown(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Topology {
    type Error = TopologyError;

    fn try_from(text: String) -> Result<Self, TopologyError> {
        text.parse()
    }
}

impl From<Topology> for String {
    fn from(topology: Topology) -> Self {
        topology.to_string()
    }
}

#[cfg(test)]
mod tests;
