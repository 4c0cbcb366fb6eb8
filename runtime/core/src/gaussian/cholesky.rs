//! A symmetric positive definite matrix as the product of a lower triangle and its transpose.

/// A lower triangle, row by row, whose part above the diagonal is zero.
#[derive(Clone, Debug)]
pub struct Cholesky {
    size: usize,
    rows: Vec<f64>,
}

impl Cholesky {
    /// Factors a matrix given row by row, of which only the lower triangle is read. What is not positive definite for
    /// rounding gets more on its diagonal, ten times more each time; None if that does not help either.
    pub fn of(matrix: &[f64], size: usize) -> Option<Self> {
        let largest = (0..size).map(|i| matrix[i * size + i]).fold(0.0, f64::max);
        let mut jitter = 0.0;
        for _ in 0..9 {
            if let Some(factor) = Self::with_jitter(matrix, size, jitter) {
                return Some(factor);
            }
            jitter = if jitter == 0.0 { largest * 1e-10 } else { jitter * 10.0 };
        }
        None
    }

    fn with_jitter(matrix: &[f64], size: usize, jitter: f64) -> Option<Self> {
        let mut rows = vec![0.0; size * size];
        for i in 0..size {
            let (above, row) = rows.split_at_mut(i * size);
            for j in 0..i {
                let other = &above[j * size..j * size + j + 1];
                row[j] = (matrix[i * size + j] - dot(&row[..j], &other[..j])) / other[j];
            }
            let rest = matrix[i * size + i] + jitter - dot(&row[..i], &row[..i]);
            if rest.is_nan() || rest <= matrix[i * size + i].abs() * 1e-14 {
                return None;
            }
            row[i] = rest.sqrt();
        }
        Some(Self { size, rows })
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.size..i * self.size + i + 1]
    }

    /// Solves L·x = b in place.
    pub fn solve_lower(&self, b: &mut [f64]) {
        for i in 0..self.size {
            let row = self.row(i);
            b[i] = (b[i] - dot(&row[..i], &b[..i])) / row[i];
        }
    }

    /// Solves Lᵀ·x = b in place.
    fn solve_upper(&self, b: &mut [f64]) {
        for i in (0..self.size).rev() {
            let row = self.row(i);
            b[i] /= row[i];
            let value = b[i];
            for (rest, factor) in b[..i].iter_mut().zip(row) {
                *rest -= value * factor;
            }
        }
    }

    /// Solves L·Lᵀ·x = b in place.
    pub fn solve(&self, b: &mut [f64]) {
        self.solve_lower(b);
        self.solve_upper(b);
    }

    /// The logarithm of the determinant of the matrix.
    pub fn log_determinant(&self) -> f64 {
        2.0 * (0..self.size).map(|i| self.rows[i * self.size + i].ln()).sum::<f64>()
    }

    /// The lower triangle of the inverse of the matrix, row by row.
    pub fn inverse(&self) -> Vec<f64> {
        let size = self.size;
        // Row j of `columns` is column j of the inverse of L.
        let mut columns = vec![0.0; size * size];
        for j in 0..size {
            let column = &mut columns[j * size..(j + 1) * size];
            column[j] = 1.0 / self.rows[j * size + j];
            for i in j + 1..size {
                let row = self.row(i);
                column[i] = -dot(&row[j..i], &column[j..i]) / row[i];
            }
        }
        let mut inverse = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..=i {
                inverse[i * size + j] =
                    dot(&columns[i * size + i..(i + 1) * size], &columns[j * size + i..(j + 1) * size]);
            }
        }
        inverse
    }
}

/// The sum of products, in four strands that the compiler can keep in one vector.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_fours, b_fours) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a_fours.remainder().iter().zip(b_fours.remainder()).map(|(a, b)| a * b).sum();
    let strands = a_fours.zip(b_fours).fold([0.0; 4], |mut sums, (a, b)| {
        for strand in 0..4 {
            sums[strand] += a[strand] * b[strand];
        }
        sums
    });
    (strands[0] + strands[1]) + (strands[2] + strands[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: [f64; 9] = [4.0, 2.0, -2.0, 2.0, 10.0, 2.0, -2.0, 2.0, 6.0];

    #[test]
    fn solves_what_it_factored() {
        let factor = Cholesky::of(&MATRIX, 3).unwrap();
        let mut x = [1.0, -2.0, 3.0];
        factor.solve(&mut x);
        for (i, want) in [1.0, -2.0, 3.0].into_iter().enumerate() {
            assert!((dot(&MATRIX[i * 3..i * 3 + 3], &x) - want).abs() < 1e-12);
        }
        assert!((factor.log_determinant() - 144_f64.ln()).abs() < 1e-12, "{}", factor.log_determinant().exp());
    }

    #[test]
    fn its_inverse_solves_too() {
        let factor = Cholesky::of(&MATRIX, 3).unwrap();
        let inverse = factor.inverse();
        for j in 0..3 {
            let mut column = [0.0; 3];
            column[j] = 1.0;
            factor.solve(&mut column);
            for i in j..3 {
                assert!((inverse[i * 3 + j] - column[i]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn a_singular_matrix_gets_a_little_on_its_diagonal_and_a_wrong_one_is_refused() {
        assert!(Cholesky::of(&[1.0, 1.0, 1.0, 1.0], 2).is_some());
        assert!(Cholesky::of(&[1.0, 2.0, 2.0, 1.0], 2).is_none());
        assert!(Cholesky::of(&[f64::NAN], 1).is_none());
    }
}
