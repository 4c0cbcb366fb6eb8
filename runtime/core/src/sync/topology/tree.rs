//! The merge tree: a merger has few parts to take instead of all (Feng et al., section III-C).
//!
//! The layers of a tree are written from its root to its leaves: `1,5,22,100` are 100 workers in 22 groups in 5 groups
//! under one root. Merging one part takes the time t_m and groups of a layer merge side by side, so a round takes t_m *
//! (n/m_1 + m_1/m_2 + ... + m_k) (1), which k layers of m_i = n^((k+1-i)/(k+1)) make shortest (3). Two inner layers are
//! as many as pay.
//!
//! The members of a group follow each other, and its merger is its own last member: a worker that has finished merges,
//! and its own part need not travel.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::{Merge, Source, TopologyError};

/// Layers that a tree may have, its root and its leaves included.
pub const MAX_LAYERS: usize = 16;

/// Which layers a tree has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeShape {
    /// Those with the fewest merges one after another, counted in whole parts: at most two inner layers, and fewer if
    /// they are as good.
    #[default]
    Auto,
    /// The paper's formula, rounded.
    Paper,
    /// These: from 1, growing, to the number of workers.
    Layers(Vec<u32>),
}

impl TreeShape {
    /// How many members each layer has: from the root's 1 to all workers.
    pub fn layers(&self, workers: u32) -> Result<Vec<u32>, TopologyError> {
        match self {
            _ if workers == 0 => Err(TopologyError::NoWorkers),
            Self::Auto => Ok(auto(workers)),
            Self::Paper => Ok(paper(workers)),
            Self::Layers(layers) if !grow_from_one(layers) => Err(TopologyError::Layers(self.to_string())),
            Self::Layers(layers) => match layers.last() {
                Some(&last) if last != workers => Err(TopologyError::LastLayer { last, workers }),
                _ => Ok(layers.clone()),
            },
        }
    }
}

fn grow_from_one(layers: &[u32]) -> bool {
    layers.first() == Some(&1) && layers.len() <= MAX_LAYERS && layers.is_sorted_by(|one, next| one < next)
}

/// The layers that make the sum of ceil(m_(i-1) / m_i) smallest. With one inner layer of m, m + ceil(n / m) is smallest
/// for m = floor(sqrt(n)), so that only the layer next to the workers has to be searched.
fn auto(workers: u32) -> Vec<u32> {
    let one_split = |members: u32| (members.isqrt(), members.isqrt() + members.div_ceil(members.isqrt()));
    let none = (workers, vec![1, workers]);
    let (middle, steps) = one_split(workers);
    let one = (steps, vec![1, middle, workers]);
    let two = (4..workers).map(|outer| {
        let (inner, steps) = one_split(outer);
        (workers.div_ceil(outer) + steps, outer, inner)
    });
    let two = two.min().map(|(steps, outer, inner)| (steps, vec![1, inner, outer, workers]));
    // The first of equals is taken: the one with the fewest layers.
    let best = [Some(none), Some(one), two].into_iter().flatten().min_by_key(|(steps, _)| *steps);
    let mut layers = best.map_or_else(Vec::new, |(_, layers)| layers);
    layers.dedup();
    layers
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
pub(super) fn merges(layers: &[u32]) -> Vec<Merge> {
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
