//! Samples made by a rule: the synthetic data sets of the papers, of any size.
//!
//! Every sample has its own stream of random numbers (ChaCha with 8 rounds, one stream per sample), so samples do not
//! depend on how many there are or in which order they are made. Only operations that every machine rounds alike are
//! used (no logarithms, no trigonometry from a library), so the same seed gives the same bits everywhere.

mod binary20;
mod higgs;
mod rcv1;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::read::ReadError;
use super::rows::{Element, Features, Labels, Rows, Samples, Values};

/// The stream of what all samples share; samples have the others.
const TEACHER_STREAM: u64 = u64::MAX;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 20 bits, and a linear teacher.
    Binary20,
    /// 28 numbers of collisions of particles: 21 measured, 7 derived.
    Higgs,
    /// 47,236 sparse columns, as of words in news, and a linear teacher.
    Rcv1,
}

/// A name that no rule has.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no synthetic data set `{0}`: use `binary20`, `higgs` or `rcv1`")]
pub struct UnknownKind(String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        match text {
            "binary20" => Ok(Self::Binary20),
            "higgs" => Ok(Self::Higgs),
            "rcv1" => Ok(Self::Rcv1),
            _ => Err(UnknownKind(text.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary20 => "binary20",
            Self::Higgs => "higgs",
            Self::Rcv1 => "rcv1",
        })
    }
}

/// What all samples of a rule have in common.
enum Teacher {
    Binary20(binary20::Teacher),
    Higgs,
    Rcv1(Box<rcv1::Teacher>),
}

/// Some samples of a rule. Two ranges of one seed have the same teacher and no sample in common: one to train on, one to
/// test with.
pub struct Synthetic {
    kind: Kind,
    seed: u64,
    random: Random,
    teacher: Teacher,
    features: Features,
    samples: Range<u64>,
    count: u64,
}

impl Synthetic {
    pub fn new(kind: Kind, seed: u64, samples: Range<u64>) -> Self {
        let mut random = Random::new(kind, seed);
        random.stream(TEACHER_STREAM);
        let (teacher, features) = match kind {
            Kind::Binary20 => {
                (Teacher::Binary20(binary20::Teacher::new(&mut random)), dense(Element::U8, binary20::WIDTH))
            }
            Kind::Higgs => (Teacher::Higgs, dense(Element::F32, higgs::WIDTH)),
            Kind::Rcv1 => {
                (Teacher::Rcv1(Box::new(rcv1::Teacher::new(&mut random))), Features::Sparse { columns: rcv1::COLUMNS })
            }
        };
        let count = samples.end.saturating_sub(samples.start);
        Self { kind, seed, random, teacher, features, samples, count }
    }

    /// How samples are made: for the manifest, so that nobody takes them for measured ones.
    pub fn rule(&self) -> String {
        let rule = match &self.teacher {
            Teacher::Binary20(teacher) => teacher.rule(),
            Teacher::Higgs => higgs::RULE.to_owned(),
            Teacher::Rcv1(_) => rcv1::rule(),
        };
        format!("{} (seed {}): {rule}", self.kind, self.seed)
    }
}

fn too_many() -> ReadError {
    ReadError::Asked("more numbers than one block of sparse rows can have".into())
}

fn dense(element: Element, width: usize) -> Features {
    Features::Dense { element, shape: vec![width] }
}

impl Samples for Synthetic {
    fn features(&self) -> &Features {
        &self.features
    }

    fn labels(&self) -> Option<Labels> {
        Some(Labels::Class)
    }

    fn count(&self) -> Option<u64> {
        Some(self.count)
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let count = self.samples.end.saturating_sub(self.samples.start).min(most as u64);
        if into.count == 0 && matches!(into.features, Values::Dense(_)) {
            into.features = Rows::of(&self.features).features;
        }
        for _ in 0..count {
            self.random.stream(self.samples.start);
            let label = match (&mut self.teacher, &mut into.features) {
                (Teacher::Binary20(teacher), Values::Dense(bytes)) => teacher.sample(&mut self.random, bytes),
                (Teacher::Higgs, Values::Dense(bytes)) => higgs::sample(&mut self.random, bytes),
                (Teacher::Rcv1(teacher), Values::Sparse { starts, columns, values }) => {
                    let label = teacher.sample(&mut self.random, columns, values);
                    starts.push(u32::try_from(columns.len()).map_err(|_| too_many())?);
                    label
                }
                _ => return Err(ReadError::Asked("rows of another kind cannot take these samples".into())),
            };
            into.labels.extend_from_slice(&i32::from(label).to_le_bytes());
            into.count += 1;
            self.samples.start += 1;
        }
        Ok(count as usize)
    }
}

/// Random numbers by seed and stream.
struct Random(ChaCha8Rng);

impl Random {
    fn new(kind: Kind, seed: u64) -> Self {
        // The kind is part of the key: two rules with one seed have nothing in common.
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let name = kind.to_string();
        key[8..8 + name.len()].copy_from_slice(name.as_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Starts a stream from its beginning.
    fn stream(&mut self, stream: u64) {
        self.0.set_stream(stream);
        self.0.set_word_pos(0);
    }

    fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// From 0 up to 1.
    fn uniform(&mut self) -> f64 {
        f64::from(self.bits()) / 4_294_967_296.0
    }

    /// Nearly a normal number: the sum of four uniform ones, with mean 0 and deviation 1.
    fn bell(&mut self) -> f64 {
        let sum = self.uniform() + self.uniform() + self.uniform() + self.uniform();
        (sum - 2.0) * 3.0_f64.sqrt()
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
}

#[cfg(test)]
mod tests;
