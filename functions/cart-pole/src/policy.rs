//! The policy, computed here: the same two layers as on the device, for one state at a time.

/// Weights `[out, in]` and biases `[out]` of both layers.
pub struct Policy {
    hidden: (Vec<f32>, Vec<f32>),
    last: (Vec<f32>, Vec<f32>),
}

impl Policy {
    pub fn new(hidden: (Vec<f32>, Vec<f32>), last: (Vec<f32>, Vec<f32>)) -> Self {
        Self { hidden, last }
    }

    /// How likely it pushes to the right: the softmax of two outputs.
    pub fn probability_of_right(&self, state: &[f32; 4]) -> f32 {
        let mut hidden = linear(&self.hidden, state);
        hidden.iter_mut().for_each(|value| *value = value.tanh());
        match linear(&self.last, &hidden)[..] {
            [left, right] => 1.0 / (1.0 + (left - right).exp()),
            _ => 0.5,
        }
    }
}

fn linear((weights, biases): &(Vec<f32>, Vec<f32>), x: &[f32]) -> Vec<f32> {
    let rows = weights.chunks_exact(x.len().max(1));
    let product = |row: &[f32]| row.iter().zip(x).map(|(weight, x)| weight * x).sum::<f32>();
    rows.zip(biases).map(|(row, bias)| product(row) + bias).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prefers_what_its_weights_prefer() {
        let policy = |preferred: f32| Policy::new((vec![0.0; 4], vec![10.0]), (vec![0.0, preferred], vec![0.0, 0.0]));
        assert_eq!(policy(0.0).probability_of_right(&[0.0; 4]), 0.5);
        assert!((policy(3.0_f32.ln()).probability_of_right(&[0.0; 4]) - 0.75).abs() < 1e-6);
    }
}
