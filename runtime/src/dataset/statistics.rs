//! Statistics: mean, variance and range of the features, counted block by block as a data set is made.
//!
//! Counts of two blocks are merged with Chan's formula, so that appending never reads old blocks again. Within a block the
//! order of additions is fixed, and bytes are summed as whole numbers, so the same samples give the same bits. The zeros
//! of sparse samples count as all numbers do, but are never visited.

use super::manifest::Statistics;
use super::rows::{Element, Features, Rows, Values};

/// Wider vectors, or more channels, are counted as if they were one: a manifest holds four numbers for each.
pub const MOST_GROUPS: usize = 65_536;

/// Partial sums that a compiler can keep in one vector register or two.
const LANES: usize = 8;
/// So many squares of bytes fit into an u32.
const BYTES_PER_SUM: usize = 65_536;

impl Features {
    /// Entries in the [`Statistics`] of such features: channels for `channels x height x width`, one for `height x width`,
    /// columns for vectors. A sample's features divide evenly among them: feature `i` of `width` belongs to the entry
    /// `i / (width / groups)`.
    pub fn groups(&self) -> usize {
        let groups = match self {
            Self::Dense { shape, .. } => match shape.as_slice() {
                [] | [_] => self.width(),
                [_, _] => 1,
                [channels, ..] => *channels,
            },
            Self::Sparse { columns } => *columns as usize,
        };
        if groups > MOST_GROUPS { 1 } else { groups }
    }
}

impl Statistics {
    /// Of some samples, which must be as `features` says; and finite, or the statistics are not.
    pub fn of(rows: &Rows, features: &Features) -> Self {
        let groups = features.groups();
        if rows.count == 0 || features.width() == 0 {
            return Self::nothing(groups);
        }
        let run = features.width() / groups;
        match (&rows.features, features) {
            (Values::Dense(bytes), Features::Dense { element: Element::U8, .. }) => of_bytes(bytes, groups, run),
            (Values::Dense(bytes), Features::Dense { element: Element::I32, .. }) => {
                of_numbers(bytes, groups, run, |bytes| f64::from(i32::from_le_bytes(bytes)))
            }
            (Values::Dense(bytes), _) => of_numbers(bytes, groups, run, |bytes| f64::from(f32::from_le_bytes(bytes))),
            (Values::Sparse { columns, values, .. }, _) => {
                let column = |column: u32| if groups == 1 { 0 } else { column as usize };
                of_sparse(columns, values, (rows.count * run) as u64, groups, column)
            }
        }
    }

    /// Before anything was counted.
    pub(super) fn nothing(groups: usize) -> Self {
        let zeros = vec![0.0; groups];
        Self { count: 0, mean: zeros.clone(), squares: zeros, low: vec![0.0; groups], high: vec![0.0; groups] }
    }

    /// Numbers that were counted, of both.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        let count = self.count.saturating_add(other.count);
        let share = other.count as f64 / count as f64;
        let weight = self.count as f64 * share;
        for (mean, squares, &other_mean, &other_squares) in
            zip4(&mut self.mean, &mut self.squares, &other.mean, &other.squares)
        {
            let apart = other_mean - *mean;
            *mean += apart * share;
            *squares += other_squares + apart * apart * weight;
        }
        for (low, high, &other_low, &other_high) in zip4(&mut self.low, &mut self.high, &other.low, &other.high) {
            *low = if other_low < *low { other_low } else { *low };
            *high = if other_high > *high { other_high } else { *high };
        }
        self.count = count;
    }

    /// The same for more columns, which were zeros so far: sparse data sets may grow wider.
    pub fn widen(&mut self, from: &Features, to: &Features) {
        let (before, groups) = (self.mean.len(), to.groups());
        if groups == 1 && before != 1 {
            let mut one = Self::nothing(1);
            for group in 0..before {
                one.merge(&Self {
                    count: self.count,
                    mean: vec![self.mean[group]],
                    squares: vec![self.squares[group]],
                    low: vec![self.low[group]],
                    high: vec![self.high[group]],
                });
            }
            *self = one;
        }
        if groups == 1 {
            let samples = self.count / (from.width().max(1) as u64);
            let zeros = samples.saturating_mul(to.width().saturating_sub(from.width()) as u64);
            self.merge(&Self { count: zeros, ..Self::nothing(1) });
        } else {
            self.mean.resize(groups, 0.0);
            self.squares.resize(groups, 0.0);
            self.low.resize(groups, 0.0);
            self.high.resize(groups, 0.0);
        }
    }

    /// The variance of an entry, as of a whole population.
    pub fn variance(&self, group: usize) -> f64 {
        self.squares.get(group).map_or(0.0, |squares| squares / self.count.max(1) as f64)
    }

    pub fn deviation(&self, group: usize) -> f64 {
        self.variance(group).sqrt()
    }
}

fn zip4<'a, A, B>(
    one: &'a mut [A],
    two: &'a mut [A],
    three: &'a [B],
    four: &'a [B],
) -> impl Iterator<Item = (&'a mut A, &'a mut A, &'a B, &'a B)> {
    one.iter_mut().zip(two).zip(three.iter().zip(four)).map(|((one, two), (three, four))| (one, two, three, four))
}

/// Sums of bytes: whole numbers, so exact.
#[derive(Clone, Copy)]
struct ByteSums {
    sum: u64,
    squares: u64,
    low: u8,
    high: u8,
}

fn of_bytes(bytes: &[u8], groups: usize, run: usize) -> Statistics {
    let mut sums = vec![ByteSums { sum: 0, squares: 0, low: u8::MAX, high: 0 }; groups];
    if run == 1 {
        bytes.chunks(groups * BYTES_PER_SUM).for_each(|rows| add_byte_columns(rows, &mut sums));
    } else {
        for sample in bytes.chunks_exact(groups * run) {
            for (sums, run) in sums.iter_mut().zip(sample.chunks_exact(run)) {
                run.chunks(BYTES_PER_SUM).for_each(|bytes| add_byte_run(bytes, sums));
            }
        }
    }
    let count = (bytes.len() / groups) as u64;
    let moments = |sums: &ByteSums| {
        let (count, sum) = (u128::from(count), u128::from(sums.sum));
        // Σ(x - mean)² = (n Σx² - (Σx)²) / n, which is never negative in whole numbers.
        let squares = count * u128::from(sums.squares) - sum * sum;
        (sum as f64 / count as f64, squares as f64 / count as f64)
    };
    let (mean, squares) = sums.iter().map(moments).unzip();
    let low = sums.iter().map(|sums| f32::from(sums.low)).collect();
    let high = sums.iter().map(|sums| f32::from(sums.high)).collect();
    Statistics { count, mean, squares, low, high }
}

fn add_byte_run(bytes: &[u8], sums: &mut ByteSums) {
    let (mut sum, mut squares, mut low, mut high) = (0_u32, 0_u32, sums.low, sums.high);
    for &byte in bytes {
        let number = u32::from(byte);
        sum += number;
        squares += number * number;
        low = low.min(byte);
        high = high.max(byte);
    }
    *sums = ByteSums { sum: sums.sum + u64::from(sum), squares: sums.squares + u64::from(squares), low, high };
}

fn add_byte_columns(rows: &[u8], sums: &mut [ByteSums]) {
    let mut parts = (vec![0_u32; sums.len()], vec![0_u32; sums.len()], vec![u8::MAX; sums.len()], vec![0; sums.len()]);
    for row in rows.chunks_exact(sums.len()) {
        for ((sum, squares), &byte) in parts.0.iter_mut().zip(&mut parts.1).zip(row) {
            let number = u32::from(byte);
            *sum += number;
            *squares += number * number;
        }
        for ((low, high), &byte) in parts.2.iter_mut().zip(&mut parts.3).zip(row) {
            *low = byte.min(*low);
            *high = byte.max(*high);
        }
    }
    for (column, sums) in sums.iter_mut().enumerate() {
        sums.sum += u64::from(parts.0[column]);
        sums.squares += u64::from(parts.1[column]);
        sums.low = sums.low.min(parts.2[column]);
        sums.high = sums.high.max(parts.3[column]);
    }
}

/// First the means, then the squares around them: a block is small enough to pass over twice.
fn of_numbers(bytes: &[u8], groups: usize, run: usize, number: impl Fn([u8; 4]) -> f64 + Copy) -> Statistics {
    let bytes = bytes.as_chunks::<4>().0;
    let count = (bytes.len() / groups) as u64;
    let (mut mean, mut squares) = (vec![0.0; groups], vec![0.0; groups]);
    let (mut low, mut high) = (vec![f64::INFINITY; groups], vec![f64::NEG_INFINITY; groups]);
    for sample in bytes.chunks_exact(groups * run) {
        if run == 1 {
            for (sum, bytes) in mean.iter_mut().zip(sample) {
                *sum += number(*bytes);
            }
            for ((low, high), bytes) in low.iter_mut().zip(&mut high).zip(sample) {
                widen_range(low, high, number(*bytes));
            }
            continue;
        }
        for (group, run) in sample.chunks_exact(run).enumerate() {
            mean[group] += sum_run(run, number);
            widen_by_run(&mut low[group], &mut high[group], run, number);
        }
    }
    mean.iter_mut().for_each(|sum| *sum /= count as f64);
    for sample in bytes.chunks_exact(groups * run) {
        if run == 1 {
            for ((squares, mean), bytes) in squares.iter_mut().zip(&mean).zip(sample) {
                let apart = number(*bytes) - mean;
                *squares += apart * apart;
            }
            continue;
        }
        for (group, run) in sample.chunks_exact(run).enumerate() {
            let mean = mean[group];
            squares[group] += sum_run(run, |bytes| {
                let apart = number(bytes) - mean;
                apart * apart
            });
        }
    }
    let narrow = |numbers: Vec<f64>| numbers.into_iter().map(|number| number as f32).collect();
    Statistics { count, mean, squares, low: narrow(low), high: narrow(high) }
}

fn widen_range(low: &mut f64, high: &mut f64, number: f64) {
    *low = if number < *low { number } else { *low };
    *high = if number > *high { number } else { *high };
}

fn widen_by_run(low: &mut f64, high: &mut f64, run: &[[u8; 4]], number: impl Fn([u8; 4]) -> f64) {
    let (mut lows, mut highs) = ([*low; LANES], [*high; LANES]);
    let (chunks, rest) = run.as_chunks::<LANES>();
    for chunk in chunks {
        for ((low, high), bytes) in lows.iter_mut().zip(&mut highs).zip(chunk) {
            widen_range(low, high, number(*bytes));
        }
    }
    for number in lows.into_iter().chain(highs).chain(rest.iter().map(|bytes| number(*bytes))) {
        if number.is_finite() {
            widen_range(low, high, number);
        }
    }
}

fn sum_run(run: &[[u8; 4]], number: impl Fn([u8; 4]) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = run.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, bytes) in sums.iter_mut().zip(chunk) {
            *sum += number(*bytes);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|bytes| number(*bytes)).sum::<f64>()
}

fn of_sparse(columns: &[u32], values: &[f32], count: u64, groups: usize, group: impl Fn(u32) -> usize) -> Statistics {
    let (mut mean, mut squares) = (vec![0.0; groups], vec![0.0; groups]);
    let (mut low, mut high) = (vec![0.0; groups], vec![0.0; groups]);
    let mut visited = vec![0_u64; groups];
    for (&column, &value) in columns.iter().zip(values) {
        let group = group(column);
        mean[group] += f64::from(value);
        if visited[group] == 0 {
            (low[group], high[group]) = (value, value);
        }
        visited[group] += 1;
        low[group] = if value < low[group] { value } else { low[group] };
        high[group] = if value > high[group] { value } else { high[group] };
    }
    mean.iter_mut().for_each(|sum| *sum /= count as f64);
    for (&column, &value) in columns.iter().zip(values) {
        let group = group(column);
        let apart = f64::from(value) - mean[group];
        squares[group] += apart * apart;
    }
    for group in 0..groups {
        let zeros = count.saturating_sub(visited[group]);
        squares[group] += zeros as f64 * mean[group] * mean[group];
        if zeros > 0 {
            low[group] = if 0.0 < low[group] { 0.0 } else { low[group] };
            high[group] = if 0.0 > high[group] { 0.0 } else { high[group] };
        }
    }
    Statistics { count, mean, squares, low, high }
}

#[cfg(test)]
mod tests;
