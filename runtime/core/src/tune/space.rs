//! What is searched: parameters, what each can be, and when it counts.
//!
//! A [`Point`] gives each parameter that counts a value. Samplers see points through [`encode`]: one coordinate from zero
//! to one for each parameter, so that none of them knows about logarithms, steps or words.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::chance::Chance;

pub mod encode;
pub mod words;

pub use words::SpaceError;

/// What a parameter is set to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Value {
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(integer) => Some(*integer as f64),
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }

    /// Equal as values: `3` and `3.0` are.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self == other,
            _ => false,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(out),
            // Always with a point or an exponent, so that it is read as a number again.
            Self::Number(number) => write!(out, "{number:?}"),
            Self::Text(text) => text.fmt(out),
        }
    }
}

/// Values by the names of their parameters. Parameters that do not count are not in it.
pub type Point = BTreeMap<String, Value>;

/// What a parameter can be.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    /// Any number from `low` to `high`; with a step only every so many from `low`.
    Number {
        low: f64,
        high: f64,
        log: bool,
        step: Option<f64>,
    },
    /// `low`, and every `step` from there up to `high`.
    Integer {
        low: i64,
        high: i64,
        log: bool,
        step: i64,
    },
    /// One of at least two different values.
    Choice(Vec<Value>),
    Constant(Value),
}

impl Domain {
    /// How many values there are; None if they cannot be counted.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Number { step: None, .. } => None,
            Self::Number { low, high, step: Some(step), .. } => Some(((high - low) / step + 1e-9) as u64 + 1),
            Self::Integer { low, high, step, .. } => Some(high.abs_diff(*low) / step.unsigned_abs() + 1),
            Self::Choice(values) => Some(values.len() as u64),
            Self::Constant(_) => Some(1),
        }
    }

    /// Whether values that are close to each other can be expected to do alike: numbers, and choices between numbers.
    pub fn is_ordered(&self) -> bool {
        match self {
            Self::Number { .. } | Self::Integer { .. } => true,
            Self::Choice(values) => {
                let numbers: Option<Vec<f64>> = values.iter().map(Value::number).collect();
                numbers.is_some_and(|numbers| numbers.is_sorted() || numbers.iter().rev().is_sorted())
            }
            Self::Constant(_) => false,
        }
    }

    /// Whether it is searched at all.
    pub fn is_free(&self) -> bool {
        self.count() != Some(1)
    }

    pub fn contains(&self, value: &Value) -> bool {
        match self {
            Self::Number { low, high, step, .. } => value.number().is_some_and(|number| {
                let steps = step.map_or(0.0, |step| (number - low) / step);
                (*low..=*high).contains(&number) && (steps - steps.round()).abs() < 1e-6
            }),
            Self::Integer { low, high, step, .. } => match value {
                Value::Integer(integer) => {
                    (low..=high).contains(&integer) && integer.abs_diff(*low) % step.unsigned_abs() == 0
                }
                _ => false,
            },
            Self::Choice(values) => values.iter().any(|choice| choice.is_same(value)),
            Self::Constant(constant) => constant.is_same(value),
        }
    }
}

/// How the value of another parameter is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Less,
    AtMost,
    AtLeast,
    Greater,
    /// One of the values.
    Is,
    /// None of the values.
    IsNot,
}

/// Under which circumstances a parameter counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub parameter: String,
    pub comparison: Comparison,
    pub values: Vec<Value>,
}

impl Condition {
    fn holds(&self, point: &Point) -> bool {
        // Where the other parameter does not count, neither does this one.
        let Some(value) = point.get(&self.parameter) else { return false };
        let orders = |is: fn(&f64, &f64) -> bool| {
            let bound = self.values.first().and_then(Value::number);
            value.number().zip(bound).is_some_and(|(value, bound)| is(&value, &bound))
        };
        match self.comparison {
            Comparison::Less => orders(f64::lt),
            Comparison::AtMost => orders(f64::le),
            Comparison::AtLeast => orders(f64::ge),
            Comparison::Greater => orders(f64::gt),
            Comparison::Is => self.values.iter().any(|wanted| wanted.is_same(value)),
            Comparison::IsNot => !self.values.iter().any(|wanted| wanted.is_same(value)),
        }
    }
}

/// A parameter: written `name=what it can be`, and ` if ` conditions joined by ` and `.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Parameter {
    pub name: String,
    pub domain: Domain,
    /// It counts only where all of them hold.
    pub conditions: Vec<Condition>,
}

/// What is searched. Its parameters are in an order in which each follows those that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Parameter>", into = "Vec<Parameter>")]
pub struct Space {
    parameters: Vec<Parameter>,
}

/// A point that is not in the space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointError {
    #[error("`{0}` is no parameter of the search; there are {1}")]
    Unknown(String, String),
    #[error("`{name}` cannot be `{value}`: it is searched in `{domain}`")]
    Outside { name: String, value: String, domain: String },
    #[error("`{0}` does not count here, because of what the other parameters are; leave it out")]
    Inactive(String),
}

impl Space {
    /// Checks that parameters fit together.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, SpaceError> {
        words::arranged(parameters).map(|parameters| Self { parameters })
    }

    /// Reads one parameter per text.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, SpaceError> {
        Self::new(texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?)
    }

    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    pub fn into_parameters(self) -> Vec<Parameter> {
        self.parameters
    }

    /// How many points there are, counting also what conditions leave out; None if they cannot be counted.
    pub fn count(&self) -> Option<u64> {
        self.parameters.iter().try_fold(1_u64, |count, parameter| count.checked_mul(parameter.domain.count()?))
    }

    /// A point of which every value is as likely as any other.
    pub fn draw(&self, chance: &mut Chance) -> Point {
        let coordinates: Vec<f64> = self.parameters.iter().map(|_| chance.unit()).collect();
        self.decode(&coordinates)
    }

    /// Keeps what counts of a value for each parameter.
    fn select(&self, value: impl Fn(usize, &Parameter) -> Option<Value>) -> Point {
        let mut point = Point::new();
        for (index, parameter) in self.parameters.iter().enumerate() {
            if parameter.conditions.iter().all(|condition| condition.holds(&point))
                && let Some(value) = value(index, parameter)
            {
                point.insert(parameter.name.clone(), value);
            }
        }
        point
    }

    /// A point of which only some values are given, with the others from another point.
    pub fn complete(&self, given: &Point, others: &Point) -> Result<Point, PointError> {
        let full = self.select(|_, parameter| {
            let value = given.get(&parameter.name).or_else(|| others.get(&parameter.name)).cloned();
            // A parameter that counts only because of what was given is not in the other point.
            Some(value.unwrap_or_else(|| parameter.domain.middle()))
        });
        self.check(given, &full)?;
        Ok(full)
    }

    /// Refuses values that the space does not have.
    pub fn check(&self, given: &Point, full: &Point) -> Result<(), PointError> {
        for (name, value) in given {
            let Some(parameter) = self.parameters.iter().find(|parameter| parameter.name == *name) else {
                let known: Vec<String> = self.parameters.iter().map(|known| format!("`{}`", known.name)).collect();
                return Err(PointError::Unknown(name.clone(), known.join(", ")));
            };
            if !parameter.domain.contains(value) {
                let (value, domain) = (value.to_string(), parameter.domain.to_string());
                return Err(PointError::Outside { name: name.clone(), value, domain });
            }
            if !full.contains_key(name) {
                return Err(PointError::Inactive(name.clone()));
            }
        }
        Ok(())
    }

    /// A point that differs in one parameter, or in each with a small chance: what evolution and local search go by.
    pub fn mutate(&self, point: &Point, chance: &mut Chance) -> Point {
        let mut coordinates = self.filled(point);
        let free: Vec<usize> = (0..self.parameters.len())
            .filter(|&index| {
                self.parameters[index].domain.is_free() && point.contains_key(&self.parameters[index].name)
            })
            .collect();
        if free.is_empty() {
            return point.clone();
        }
        let chosen = free[chance.below(free.len())];
        for &index in &free {
            if index == chosen || chance.unit() < 0.5 / free.len() as f64 {
                coordinates[index] = self.parameters[index].domain.moved(coordinates[index], chance);
            }
        }
        self.decode(&coordinates)
    }
}

impl From<Space> for Vec<Parameter> {
    fn from(space: Space) -> Self {
        space.parameters
    }
}

impl TryFrom<Vec<Parameter>> for Space {
    type Error = SpaceError;

    fn try_from(parameters: Vec<Parameter>) -> Result<Self, SpaceError> {
        Self::new(parameters)
    }
}

#[cfg(test)]
mod tests;
