//! Points as coordinates from zero to one, and back.
//!
//! A parameter with countable values cuts the unit interval into as many pieces, and a value is the middle of its piece;
//! on a logarithmic scale the pieces of small integers are the wider ones.

use super::{Domain, Point, Space, Value};
use crate::tune::chance::Chance;

impl Domain {
    /// Where a value lies. What is not in the domain lies where the nearest value does, or in the first piece.
    pub fn coordinate(&self, value: &Value) -> f64 {
        match self {
            Self::Number { low, high, log, step: None } => {
                let number = value.number().unwrap_or(*low);
                let share = if *log { (number / low).ln() / (high / low).ln() } else { (number - low) / (high - low) };
                share.clamp(0.0, 1.0)
            }
            Self::Number { low, step: Some(step), .. } => {
                middle_of(((value.number().unwrap_or(*low) - low) / step).round() as u64, self.pieces())
            }
            Self::Integer { low, high, log: true, .. } => {
                let (from, to) = edges(*low, *high);
                ((value.number().unwrap_or(from).ln() - from) / (to - from)).clamp(0.0, 1.0)
            }
            Self::Integer { low, step, .. } => {
                let number = value.number().unwrap_or(*low as f64);
                middle_of(((number - *low as f64) / *step as f64).round() as u64, self.pieces())
            }
            Self::Choice(values) => {
                middle_of(values.iter().position(|choice| choice.is_same(value)).unwrap_or(0) as u64, self.pieces())
            }
            Self::Constant(_) => 0.5,
        }
    }

    /// The value at a coordinate; those outside of the unit interval count as its ends.
    pub fn value(&self, coordinate: f64) -> Value {
        let share = if coordinate.is_nan() { 0.5 } else { coordinate.clamp(0.0, 1.0) };
        match self {
            Self::Number { low, high, log, step: None } => {
                let number = if *log { low * (high / low).powf(share) } else { low + (high - low) * share };
                Value::Number(number.clamp(*low, *high))
            }
            Self::Number { low, high, step: Some(step), .. } => {
                Value::Number((low + step * self.piece(share) as f64).min(*high))
            }
            Self::Integer { low, high, log: true, .. } => {
                let (from, to) = edges(*low, *high);
                Value::Integer(((from + (to - from) * share).exp().round() as i64).clamp(*low, *high))
            }
            Self::Integer { low, step, .. } => Value::Integer(low + step * self.piece(share) as i64),
            Self::Choice(values) => values[self.piece(share) as usize].clone(),
            Self::Constant(value) => value.clone(),
        }
    }

    /// The value that stands for a parameter of which nothing is known.
    pub fn middle(&self) -> Value {
        self.value(0.5)
    }

    /// The ends of the piece that a coordinate is in: equal ones where there are no pieces.
    pub fn piece_around(&self, coordinate: f64) -> (f64, f64) {
        match self {
            Self::Number { step: None, .. } => (coordinate, coordinate),
            Self::Integer { low, high, log: true, .. } => {
                let (from, to) = edges(*low, *high);
                let number = self.value(coordinate).number().unwrap_or(1.0);
                (((number - 0.5).ln() - from) / (to - from), ((number + 0.5).ln() - from) / (to - from))
            }
            _ => {
                let (piece, pieces) = (self.piece(coordinate) as f64, self.pieces() as f64);
                (piece / pieces, (piece + 1.0) / pieces)
            }
        }
    }

    /// How many values there are, at least one.
    fn pieces(&self) -> u64 {
        self.count().unwrap_or(1).max(1)
    }

    /// The number of the piece at a coordinate.
    pub fn piece(&self, coordinate: f64) -> u64 {
        if let Self::Integer { low, log: true, .. } = self
            && let Value::Integer(value) = self.value(coordinate)
        {
            return value.abs_diff(*low);
        }
        let pieces = self.pieces();
        ((coordinate * pieces as f64) as u64).min(pieces - 1)
    }

    /// The middle of a piece.
    pub fn middle_of_piece(&self, piece: u64) -> f64 {
        match self {
            Self::Integer { low, log: true, .. } => {
                self.coordinate(&Value::Integer(low.saturating_add_unsigned(piece)))
            }
            _ => middle_of(piece, self.pieces()),
        }
    }

    /// A coordinate with another value, close by where values have an order.
    pub fn moved(&self, coordinate: f64, chance: &mut Chance) -> f64 {
        let pieces = self.pieces();
        if self.is_ordered() && self.count().is_none_or(|count| count > 3) {
            for _ in 0..16 {
                let moved = (coordinate + 0.2 * chance.normal()).clamp(0.0, 1.0);
                if !self.value(moved).is_same(&self.value(coordinate)) {
                    return moved;
                }
            }
        }
        let other = (self.piece(coordinate) + 1 + chance.below(pieces.max(2) as usize - 1) as u64) % pieces;
        self.middle_of_piece(other)
    }
}

/// The logarithms of where the first piece of integers begins and the last one ends.
fn edges(low: i64, high: i64) -> (f64, f64) {
    ((low as f64 - 0.5).ln(), (high as f64 + 0.5).ln())
}

fn middle_of(piece: u64, pieces: u64) -> f64 {
    (piece.min(pieces - 1) as f64 + 0.5) / pieces as f64
}

impl Space {
    /// For each parameter where its value lies, None where it does not count.
    pub fn encode(&self, point: &Point) -> Vec<Option<f64>> {
        let of =
            |parameter: &super::Parameter| point.get(&parameter.name).map(|value| parameter.domain.coordinate(value));
        self.parameters.iter().map(of).collect()
    }

    /// The same, with the middle for what does not count.
    pub fn filled(&self, point: &Point) -> Vec<f64> {
        self.encode(point).into_iter().map(|coordinate| coordinate.unwrap_or(0.5)).collect()
    }

    /// The point at a coordinate for each parameter.
    pub fn decode(&self, coordinates: &[f64]) -> Point {
        self.select(|index, parameter| Some(parameter.domain.value(coordinates.get(index).copied().unwrap_or(0.5))))
    }

    /// How many numbers [`Self::features`] gives, as the number of the parameter that each belongs to.
    pub fn feature_groups(&self) -> Vec<usize> {
        let mut groups = Vec::new();
        let free = self.parameters.iter().filter(|parameter| parameter.domain.is_free());
        for (group, parameter) in free.enumerate() {
            groups.extend(std::iter::repeat_n(group, parameter.domain.features()));
        }
        groups
    }

    /// What a model of distances sees of a point: where an order is, the coordinate; elsewhere a number for each choice,
    /// so that any two choices are as far from each other as any other two.
    pub fn features(&self, point: &Point) -> Vec<f64> {
        let mut features = Vec::new();
        for (parameter, coordinate) in self.parameters.iter().zip(self.encode(point)) {
            if !parameter.domain.is_free() {
                continue;
            }
            match (parameter.domain.features(), coordinate) {
                (1, coordinate) => features.push(coordinate.unwrap_or(0.5)),
                (choices, coordinate) => {
                    let from = features.len();
                    features.resize(from + choices, 0.0);
                    if let Some(coordinate) = coordinate {
                        features[from + parameter.domain.piece(coordinate) as usize] = std::f64::consts::FRAC_1_SQRT_2;
                    }
                }
            }
        }
        features
    }
}

impl Domain {
    fn features(&self) -> usize {
        if self.is_ordered() { 1 } else { self.pieces() as usize }
    }
}
