//! Products of sizes around every limit in here, of operands that lie in every way, against a naive one.

use super::*;
use crate::run::Cancel;

/// Sizes below, at and past blocks, panels, packed rows, kept columns and kept depth.
const SIZES: [(usize, usize, usize); 14] = [
    (1, 5, 7),
    (7, 1, 9),
    (2, 3, 1),
    (3, 4, 0),
    (5, 17, 15),
    (6, 16, 16),
    (7, 16, KEEP_DEPTH + 1),
    (8, 33, 40),
    (12, 20, 100),
    (13, 40, 600),
    (IN_PLACE_ROWS, 31, 24),
    (IN_PLACE_ROWS + 1, KEEP_COLUMNS + 1, KEEP_DEPTH + 8),
    (KEEP_ROWS + 12, 2 * KEEP_COLUMNS - 3, 1_030),
    (100, 35, 64),
];

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919 + seed * 104_729) % 2_003) as f32 / 1_001.0 - 1.0).collect()
}

/// The ways in which a matrix of so many rows and columns can lie: row after row, column after column, with gaps, and as
/// one row, one column or one element for all.
fn ways(rows: usize, columns: usize) -> [(usize, usize); 7] {
    [(columns.max(1), 1), (1, rows.max(1)), (2 * columns + 3, 2), (0, 1), (0, 2), (1, 0), (0, 0)]
}

#[test]
fn products_agree_with_naive_ones_however_their_operands_lie() {
    for (m, n, k) in SIZES {
        for (a_row, a_column) in ways(m, k) {
            for (b_row, b_column) in ways(k, n) {
                let (a_data, b_data) =
                    (numbers(1 + m * a_row + k * a_column, 1), numbers(1 + k * b_row + n * b_column, 2));
                let (a, b) = (Matrix::new(&a_data, a_row, a_column), Matrix::new(&b_data, b_row, b_column));
                let sizes = Sizes { m, n, k };
                let mut scratch = vec![f32::NAN; sizes.scratch(a)];
                let mut c = vec![f32::NAN; m * n];
                let cancel = Cancel::default();
                multiply_alone(sizes, a, b, &mut c, 0.5, &mut scratch, &mut Pace::alone(&cancel)).unwrap();
                for (index, &found) in c.iter().enumerate() {
                    let (row, column) = (index / n, index % n);
                    let product = |step: usize| {
                        let (x, y) = (a_data[row * a_row + step * a_column], b_data[step * b_row + column * b_column]);
                        f64::from(x) * f64::from(y)
                    };
                    let wanted = 0.5 * (0..k).map(product).sum::<f64>();
                    let size = (0..k).map(|step| product(step).abs()).sum::<f64>();
                    let apart = (f64::from(found) - wanted).abs();
                    assert!(
                        apart <= 1e-5 * size + 1e-6,
                        "{m}x{n}x{k}, a by {a_row} and {a_column}, b by {b_row} and {b_column}: \
                         element {row}, {column} is {found}, not {wanted}"
                    );
                }
            }
        }
    }
}
