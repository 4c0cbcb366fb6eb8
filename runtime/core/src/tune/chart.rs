//! What a study came to as pictures: the best value so far, the trials across their parameters, and which parameters
//! mattered.

use std::fmt::Write;
use std::str::FromStr;

use super::importance::importance;
use super::sampler::Seen;
use super::table::Table;
use crate::drawing::{begin, put};

mod curve;
mod parallel;
mod shares;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 50.0;

/// What can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value of each trial, and the best so far.
    Curve,
    /// A line for each trial across all parameters, coloured by its value.
    Parallel,
    /// A bar for each parameter, by how much it mattered.
    Importance,
}

/// A text that is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no picture; there are `curve`, `parallel` and `importance`")]
pub struct BadKind(pub String);

impl FromStr for Kind {
    type Err = BadKind;

    fn from_str(text: &str) -> Result<Self, BadKind> {
        match text {
            "curve" => Ok(Self::Curve),
            "parallel" => Ok(Self::Parallel),
            "importance" => Ok(Self::Importance),
            _ => Err(BadKind(text.chars().take(80).collect())),
        }
    }
}

/// Draws a study as an SVG. What there is nothing of yet is a picture that says so.
pub fn chart(kind: Kind, table: &Table) -> String {
    match kind {
        Kind::Curve => curve::draw(table),
        Kind::Parallel => parallel::draw(table),
        Kind::Importance => {
            let done = table.observations();
            let shares = importance(&table.space, Seen { done: &done, pending: &[] }, table.seed);
            shares::draw(table, shares.as_deref())
        }
    }
}

/// A picture that says why there is nothing on it.
fn nothing(title: &str, why: &str) -> String {
    let mut svg = String::new();
    begin(&mut svg, title, (WIDTH, 120.0), 20.0);
    put!(svg, r##"<text x="20" y="70" fill="#666666">{why}</text>"##);
    put!(svg, "</svg>");
    svg
}

/// A value with so many digits as tell it from others.
fn short(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
