//! The merge tree: a merger has few parts to take instead of all (Feng et al., section III-C).
//!
//! The layers of a tree are written from its root to its leaves: `1,5,22,100` are 100 workers in 22 groups in 5 groups
//! under one root. Merging one part takes the time t_m and groups of a layer merge side by side, so a round takes t_m *
//! (n/m_1 + m_1/m_2 + ... + m_k) (1), which k layers of m_i = n^((k+1-i)/(k+1)) make shortest (3). The paper stops at two
//! inner layers.
//!
//! The members of a group follow each other, and its merger is its own last member: a worker that has finished merges,
//! and its own part need not travel.
//!
//! The automatic tree counts what that formula leaves out. A merger takes one part less than its group has, since one is
//! its own; and handing a result on is a transfer as well, during which whoever merges on would have nothing to do. So the
//! group of a merger that merges on has one member more, which it takes meanwhile: 14 transfers one after another for 100
//! workers, where the best tree of equal groups and two inner layers has 16.

use std::fmt::{self, Display};
use std::ops::Range;
use std::str::FromStr;

use super::{Merge, Source, TopologyError};

/// Layers that a tree may have, its root and its leaves included.
pub const MAX_LAYERS: usize = 16;

/// Which layers a tree has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeShape {
    /// Those with the fewest transfers one after another, and fewer layers if they are as good.
    #[default]
    Auto,
    /// The paper's formula, rounded.
    Paper,
    /// These: from 1, growing, to the number of workers.
    Layers(Vec<u32>),
}

impl TreeShape {
    /// How many parts its merges take at most, all together.
    pub(super) fn most_parts(&self, workers: u32) -> u64 {
        match self {
            Self::Auto | Self::Paper => 2 * u64::from(workers),
            Self::Layers(layers) => layers.iter().map(|&layer| u64::from(layer)).sum(),
        }
    }

    /// The merges of a tree of this shape.
    pub(super) fn merges(&self, workers: u32) -> Result<Vec<Merge>, TopologyError> {
        match self {
            _ if workers == 0 => Err(TopologyError::NoWorkers),
            Self::Auto => Ok(Growing::new(&fewest_transfers(workers)).tree(workers)),
            Self::Paper => Ok(merges(&paper(workers))),
            Self::Layers(layers) if !grow_from_one(layers) => Err(TopologyError::Layers(self.to_string())),
            Self::Layers(layers) => match layers.last() {
                Some(&last) if last != workers => Err(TopologyError::LastLayer { last, workers }),
                _ => Ok(merges(layers)),
            },
        }
    }
}

fn grow_from_one(layers: &[u32]) -> bool {
    layers.first() == Some(&1) && layers.len() <= MAX_LAYERS && layers.is_sorted_by(|one, next| one < next)
}

/// Layers of merges that an automatic tree has at most: for a thousand workers, a fifth would save one transfer of 22.
const AUTO_LAYERS: usize = 4;

/// How many parts a merger takes from others in each layer, the one next to the workers first, for the fewest transfers
/// one after another. A layer costs as many as it takes, and one that hands its result on. For so many of both, the tree
/// with the most workers takes equally many in all layers, or one more in some.
fn fewest_transfers(workers: u32) -> Vec<u32> {
    for transfers in 2_u32.. {
        for layers in 1..=AUTO_LAYERS.min(transfers as usize / 2) {
            let (takes, count) = (transfers - layers as u32, layers as u32);
            let more = |mask: u32| (0..count).map(move |layer| takes / count + (mask >> layer & 1)).collect::<Vec<_>>();
            let masks = (0..1_u32 << layers).filter(|mask| mask.count_ones() == takes % count);
            if let Some(found) = masks.map(more).find(|takes| Growing::new(takes).most() >= u64::from(workers)) {
                return found;
            }
        }
    }
    Vec::new()
}

/// A tree whose mergers take so many parts in each layer, and one more in each after which they merge on.
struct Growing<'a> {
    takes: &'a [u32],
    /// By layer, from the workers' own parts on: how many workers a result of that layer has at most.
    results: Vec<u64>,
    /// The same of a merger that merges on.
    going_on: Vec<u64>,
    merges: Vec<Merge>,
}

impl<'a> Growing<'a> {
    fn new(takes: &'a [u32]) -> Self {
        let (mut results, mut going_on) = (vec![1_u64], vec![1_u64]);
        for (layer, &takes) in takes.iter().enumerate() {
            let (part, own) = (results[layer], going_on[layer]);
            let with = |takes: u64| own.saturating_add(takes.saturating_mul(part));
            results.push(with(u64::from(takes)));
            going_on.push(with(u64::from(takes) + 1));
        }
        Self { takes, results, going_on, merges: Vec::new() }
    }

    /// How many workers the tree has at most.
    fn most(&self) -> u64 {
        self.results.last().copied().unwrap_or(1)
    }

    fn tree(mut self, workers: u32) -> Vec<Merge> {
        self.grow(self.takes.len(), 0..workers, false);
        self.merges
    }

    /// The merges of the workers of a range, up to a layer. Each part that is taken has as large a share of the workers as
    /// it may have of the most. The last worker merges, so its own part comes last.
    fn grow(&mut self, layer: usize, range: Range<u32>, goes_on: bool) -> Source {
        let Some(below) = layer.checked_sub(1) else { return Source::Worker(range.start) };
        let (part, own) = (self.results[below], self.going_on[below]);
        let takes = u64::from(self.takes[below]) + u64::from(goes_on);
        let (mut from, mut rest) = (Vec::new(), range.clone());
        for left in (1..=takes).rev() {
            let workers = u64::from(rest.end - rest.start);
            let share = (workers * part).div_ceil(own + left * part).min(workers - 1) as u32;
            if share > 0 {
                from.push(self.grow(below, rest.start..rest.start + share, false));
                rest.start += share;
            }
        }
        from.push(self.grow(below, rest, true));
        self.merges.push(Merge { layer: layer as u32, shard: 0, by: range.end - 1, from });
        Source::Merge(self.merges.len() - 1)
    }
}

fn paper(workers: u32) -> Vec<u32> {
    let inner = (f64::from(workers).ln() - 1.0).round().clamp(0.0, 2.0) as u32;
    let member = |exponent: u32| f64::from(workers).powf(f64::from(exponent) / f64::from(inner + 1)).round() as u32;
    let mut layers = vec![1];
    layers.extend((1..=inner).map(member));
    layers.push(workers);
    // Few workers make layers that are rounded to the same.
    layers.dedup();
    layers
}

/// The seconds that merging takes with these layers, if taking one part takes `merge_seconds`: formula (1).
pub fn predicted_seconds(layers: &[u32], merge_seconds: f64) -> f64 {
    layers.windows(2).map(|pair| f64::from(pair[1]) / f64::from(pair[0].max(1))).sum::<f64>() * merge_seconds
}

/// The merges of a tree with these layers, those next to the workers first.
fn merges(layers: &[u32]) -> Vec<Merge> {
    let Some((&workers, inner)) = layers.split_last() else { return Vec::new() };
    let mut merges: Vec<Merge> = Vec::new();
    // What the next layer merges: the source, and the worker that has it.
    let mut members: Vec<(Source, u32)> = (0..workers).map(|worker| (Source::Worker(worker), worker)).collect();
    for (layer, &groups) in (1..).zip(inner.iter().rev()) {
        let mut next = Vec::with_capacity(groups as usize);
        let mut rest = members.as_slice();
        for group in 0..groups as usize {
            let size = members.len() / groups as usize + usize::from(group < members.len() % groups as usize);
            let (own, others) = rest.split_at(size);
            rest = others;
            let Some(&(_, by)) = own.last() else { continue };
            next.push((Source::Merge(merges.len()), by));
            merges.push(Merge { layer, shard: 0, by, from: own.iter().map(|(source, _)| *source).collect() });
        }
        members = next;
    }
    merges
}

impl Display for TreeShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Paper => f.write_str("paper"),
            Self::Layers(layers) => {
                let words: Vec<String> = layers.iter().map(u32::to_string).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

impl FromStr for TreeShape {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        match text {
            "auto" => Ok(Self::Auto),
            "paper" => Ok(Self::Paper),
            text => {
                let layers: Option<Vec<u32>> =
                    text.split(',').take(MAX_LAYERS + 1).map(|word| word.trim().parse().ok()).collect();
                let layers = layers.filter(|layers| grow_from_one(layers));
                layers.map(Self::Layers).ok_or_else(|| TopologyError::Layers(text.to_owned()))
            }
        }
    }
}
