//! All combinations of a few values of each parameter, in the order of an odometer whose last wheel turns fastest.

use super::Seen;
use crate::tune::space::{Domain, Parameter, Point, Space};

/// Coordinates of the values of a parameter: all if there are few, else evenly over the range with both of its ends.
fn values(parameter: &Parameter, at_most: u32) -> u64 {
    parameter.domain.count().unwrap_or(u64::MAX).min(match parameter.domain {
        // Words have no order in which some could be left out.
        Domain::Choice(_) => u64::MAX,
        _ => u64::from(at_most),
    })
}

fn coordinate(parameter: &Parameter, of: u64, index: u64) -> f64 {
    match parameter.domain.count() {
        Some(count) if count == of => parameter.domain.middle_of_piece(index),
        _ => index as f64 / (of - 1) as f64,
    }
}

/// How many combinations there are, where that is a number.
pub fn count(space: &Space, at_most: u32) -> u64 {
    space.parameters().iter().fold(1, |count, parameter| count.saturating_mul(values(parameter, at_most)))
}

/// The first combination from the one with this number on that was not proposed yet; then the first of all.
pub fn next(space: &Space, at_most: u32, number: u64, seen: Seen<'_>) -> Option<Point> {
    let count = count(space, at_most);
    let start = number % count.max(1);
    // As many as are known can be in the way, and conditions make several combinations one point.
    (start..count).chain(0..start).map(|number| combination(space, at_most, number)).find(|point| !seen.has(point))
}

fn combination(space: &Space, at_most: u32, mut number: u64) -> Point {
    let mut coordinates: Vec<f64> = Vec::with_capacity(space.parameters().len());
    for parameter in space.parameters().iter().rev() {
        let wheel = values(parameter, at_most);
        coordinates.push(coordinate(parameter, wheel, number % wheel));
        number /= wheel;
    }
    coordinates.reverse();
    space.decode(&coordinates)
}
