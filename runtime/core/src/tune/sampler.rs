//! Which point to try next.
//!
//! A proposal is a function of the seed, of the number of the trial, and of what is known when it is asked for: what was
//! tried, in the order in which it ended, and what is being tried. So a study that is rebuilt proposes the same.
//!
//! Values are minimised here; a study turns those around that are to be large. A failed trial is an observation too: its
//! point is one of the bad ones. No point is proposed twice where points can be counted, because a job with the same seed
//! would only come to the same value again.
//!
//! - [`grid`]: all combinations
//! - [`tpe`]: more of what the best have and the others have not
//! - [`gp`]: where a Gaussian process expects the largest improvement
//! - [`cma_es`]: a cloud of points that moves, turns and stretches
//! - [`evolution`]: children of the best, for architectures

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::chance::{Chance, Purpose};
use super::space::{Point, Space};

pub mod cma_es;
pub mod evolution;
pub mod gp;
pub mod grid;
pub mod tpe;

/// A trial that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub point: Point,
    /// Lower is better. None if the trial failed.
    pub value: Option<f64>,
}

/// What is known when a point is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// In the order in which they ended.
    pub done: &'a [Observation],
    pub pending: &'a [Point],
}

/// How points are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SamplerKind {
    /// The Gaussian process while there are few trials, which is where it is worth its time, then the estimator.
    #[default]
    Auto,
    Random,
    /// With so many values of each parameter that has more.
    Grid(u32),
    Tpe,
    Gp,
    CmaEs,
    Evolution,
}

/// A text that is no sampler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no sampler; there are `auto`, `tpe`, `gp`, `cma-es`, `evolution`, `random`, and `grid` or `grid:5` (values of \
     each parameter that has more)"
)]
pub struct BadSampler(pub String);

const GRID_VALUES: u32 = 5;

/// Up to so many finished trials `auto` means the Gaussian process, whose time grows with their square and more.
const FEW: usize = 200;

/// Proposes points of a space.
#[derive(Clone, Debug)]
pub struct Sampler {
    kind: SamplerKind,
    space: Space,
    seed: u64,
    /// What would be the same if it was computed again.
    kernel: gp::Memo,
}

impl Sampler {
    pub fn new(kind: SamplerKind, space: Space, seed: u64) -> Self {
        Self { kind, space, seed, kernel: gp::Memo::default() }
    }

    /// A point for the trial with this number; None if every point was proposed already.
    pub fn propose(&mut self, number: u64, seen: Seen<'_>) -> Option<Point> {
        let mut chance = Chance::new(self.seed, Purpose::Model, number);
        let point = match self.kind {
            SamplerKind::Grid(values) => return grid::next(&self.space, values, number, seen),
            SamplerKind::Random => self.space.draw(&mut Chance::new(self.seed, Purpose::Point, number)),
            SamplerKind::Evolution => evolution::propose(&self.space, seen, &mut chance),
            SamplerKind::CmaEs => cma_es::propose(&self.space, self.seed, seen, &mut chance),
            SamplerKind::Tpe if seen.done.len() < tpe::START => self.designed(number, tpe::START),
            SamplerKind::Tpe => tpe::propose(&self.space, seen, &mut chance),
            SamplerKind::Auto if seen.done.len() > FEW => tpe::propose(&self.space, seen, &mut chance),
            SamplerKind::Gp | SamplerKind::Auto => {
                let start = gp::start(&self.space);
                let worked = seen.done.iter().filter(|observation| observation.value.is_some()).count();
                let is_known = worked >= start.min(3) && seen.done.len() >= start;
                let proposed =
                    is_known.then(|| gp::propose(&self.space, seen, &mut self.kernel, &mut chance)).flatten();
                proposed.unwrap_or_else(|| self.designed(number, start))
            }
        };
        self.unknown(point, seen, &mut chance)
    }

    /// One of the first points: of each parameter, every part of the range is tried once (a Latin hypercube).
    fn designed(&self, number: u64, count: usize) -> Point {
        let mut chance = Chance::new(self.seed, Purpose::Point, number);
        let (round, row) = (number / count as u64, (number % count as u64) as usize);
        let mut design = Chance::new(self.seed, Purpose::Design, round);
        let coordinates: Vec<f64> = (self.space.parameters().iter())
            .map(|_| {
                let mut rows: Vec<usize> = (0..count).collect();
                design.shuffle(&mut rows);
                (rows[row] as f64 + chance.unit()) / count as f64
            })
            .collect();
        self.space.decode(&coordinates)
    }

    /// The point itself, or one near it that was not proposed yet.
    fn unknown(&self, point: Point, seen: Seen<'_>, chance: &mut Chance) -> Option<Point> {
        let Some(count) = self.space.count() else { return Some(point) };
        if !seen.has(&point) {
            return Some(point);
        }
        let mut near = point.clone();
        for attempt in 0..200 {
            let other = if attempt < 100 { self.space.mutate(&near, chance) } else { self.space.draw(chance) };
            if !seen.has(&other) {
                return Some(other);
            }
            near = if attempt % 10 == 9 { point.clone() } else { other };
        }
        // So few are left that they are better counted than guessed.
        match u32::try_from(count) {
            Ok(_) => grid::next(&self.space, u32::MAX, 0, seen),
            Err(_) => Some(point),
        }
    }
}

impl Seen<'_> {
    /// Whether a point was proposed before.
    pub fn has(&self, point: &Point) -> bool {
        self.pending.contains(point) || self.done.iter().any(|observation| observation.point == *point)
    }

    /// What worked, best first; equal ones in the order in which they ended.
    pub fn ranked(&self) -> Vec<(&Point, f64)> {
        let mut ranked: Vec<(&Point, f64)> =
            self.done.iter().filter_map(|seen| Some((&seen.point, seen.value?))).collect();
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranked
    }
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => out.write_str("auto"),
            Self::Random => out.write_str("random"),
            Self::Grid(values) => write!(out, "grid:{values}"),
            Self::Tpe => out.write_str("tpe"),
            Self::Gp => out.write_str("gp"),
            Self::CmaEs => out.write_str("cma-es"),
            Self::Evolution => out.write_str("evolution"),
        }
    }
}

impl FromStr for SamplerKind {
    type Err = BadSampler;

    fn from_str(text: &str) -> Result<Self, BadSampler> {
        let bad = || BadSampler(text.chars().take(80).collect());
        Ok(match text {
            "auto" => Self::Auto,
            "random" => Self::Random,
            "grid" => Self::Grid(GRID_VALUES),
            "tpe" => Self::Tpe,
            "gp" => Self::Gp,
            "cma-es" => Self::CmaEs,
            "evolution" => Self::Evolution,
            _ => {
                let values = text.strip_prefix("grid:").and_then(|values| values.parse().ok()).ok_or_else(bad)?;
                if values < 2 {
                    return Err(bad());
                }
                Self::Grid(values)
            }
        })
    }
}

impl TryFrom<String> for SamplerKind {
    type Error = BadSampler;

    fn try_from(text: String) -> Result<Self, BadSampler> {
        text.parse()
    }
}

impl From<SamplerKind> for String {
    fn from(kind: SamplerKind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests;
