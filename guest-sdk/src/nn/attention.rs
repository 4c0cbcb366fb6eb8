//! Attention of every token of `x [batch, tokens, width]` to all: per head
//! `softmax(q k^T / sqrt(depth)) v`, the heads beside each other, then a linear layer.
//!
//! PyTorch keeps query, key and value as one parameter of three times the height; here they have one each, in its order:
//! `in_proj_weight.query`, `.key`, `.value` (Glorot's uniform distribution for all three together),
//! `in_proj_bias.query`, `.key`, `.value` (0), `out_proj.weight`, `out_proj.bias` (0).
//!
//! ```
//! use weft_sdk::nn::{Mode, MultiHeadAttention};
//! use weft_sdk::{Path, Tensor};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let attention = MultiHeadAttention::new(&Path::root(), 8, 2)?;
//! let x = Tensor::normal(&[3, 5, 8], 0.0, 1.0)?;
//! assert_eq!(attention.forward(&x, None, Mode::Evaluation)?.dimensions(), [3, 5, 8]);
//! # Ok(())
//! # }
//! ```

use super::{Dropout, Layer, Linear, LinearConfig, Mode};
use crate::model::Initial;
use crate::{Error, Path, Result, Tensor};

/// Attention before it is declared.
#[derive(Clone, Debug)]
pub struct MultiHeadAttentionConfig {
    width: u32,
    heads: u32,
    dropout: f32,
}

impl MultiHeadAttentionConfig {
    pub fn new(width: u32, heads: u32) -> Self {
        Self { width, heads, dropout: 0.0 }
    }

    /// How much of what tokens attend to is dropped in training.
    pub fn dropout(self, dropout: f32) -> Self {
        Self { dropout, ..self }
    }

    pub fn init(self, path: &Path) -> Result<MultiHeadAttention> {
        let Self { width, heads, dropout } = self;
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(Error::bad_input(format!("a width of {width} cannot be shared by {heads} heads")));
        }
        const PARTS: [&str; 3] = ["query", "key", "value"];
        let glorot = Initial::glorot_uniform(width, 3 * width);
        let mut weights = Vec::with_capacity(PARTS.len());
        for part in PARTS {
            weights.push(path.at("in_proj_weight").weight(part, &[width, width], glorot)?);
        }
        let mut biases = Vec::with_capacity(PARTS.len());
        for part in PARTS {
            biases.push(path.at("in_proj_bias").weight(part, &[width], Initial::Constant(0.0))?);
        }
        let output = LinearConfig::new(width, width).initial(Initial::of_fan_in(width), Initial::Constant(0.0));
        Ok(MultiHeadAttention {
            projections: weights.into_iter().zip(biases).collect(),
            output: output.init(&path.at("out_proj"))?,
            heads,
            dropout: Dropout(dropout),
        })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct MultiHeadAttention {
    /// Weight and bias of query, key and value.
    projections: Vec<(Tensor, Tensor)>,
    output: Linear,
    heads: u32,
    dropout: Dropout,
}

impl MultiHeadAttention {
    pub fn new(path: &Path, width: u32, heads: u32) -> Result<Self> {
        MultiHeadAttentionConfig::new(width, heads).init(path)
    }

    /// With a `mask` (u8, broadcast to `[batch, head, token, token]`), nobody attends where it is 0.
    pub fn forward(&self, x: &Tensor, mask: Option<&Tensor>, mode: Mode) -> Result<Tensor> {
        let dimensions = x.dimensions();
        let [batch, tokens, width] = dimensions[..] else {
            return Err(Error::bad_shape(format!("attention: {dimensions:?} is not [batch, tokens, width]")));
        };
        let depth = width / self.heads;
        // `[batch, head, token, depth]`: a view, which products take as it is.
        let heads = |index: usize| -> Result<Tensor> {
            let (weight, bias) = &self.projections[index];
            x.linear(weight, Some(bias), None)?.reshape(&[batch, tokens, self.heads, depth])?.permute(&[0, 2, 1, 3])
        };
        let (query, key, value) = (heads(0)?, heads(1)?, heads(2)?);
        let scores = query.scaled_matmul(&key.transpose()?, 1.0 / (depth as f32).sqrt())?;
        let shares = match mask {
            Some(mask) => scores.masked_softmax(mask)?,
            None => scores.softmax()?,
        };
        let mixed = self.dropout.forward(&shares, mode)?.matmul(&value)?;
        self.output.forward(&mixed.permute(&[0, 2, 1, 3])?.reshape(&[batch, tokens, width])?)
    }
}

impl Layer for MultiHeadAttention {
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        self.forward(x, None, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_ones_changes_nothing_and_masked_tokens_do_not_matter() {
        let attention = MultiHeadAttention::new(&Path::root(), 4, 2).unwrap();
        let x = Tensor::normal(&[1, 3, 4], 0.0, 1.0).unwrap();
        let forward = |x: &Tensor, mask: Option<&Tensor>| {
            attention.forward(x, mask, Mode::Evaluation).unwrap().to_vec::<f32>().unwrap()
        };
        let all = Tensor::new(&[1_u8; 3], &[1, 1, 1, 3]).unwrap();
        assert_eq!(forward(&x, Some(&all)), forward(&x, None));

        let but_the_last = Tensor::new(&[1_u8, 1, 0], &[1, 1, 1, 3]).unwrap();
        let mut changed = x.to_vec::<f32>().unwrap();
        changed[8..].fill(9.0);
        let changed = Tensor::new(&changed, &[1, 3, 4]).unwrap();
        assert_eq!(forward(&x, Some(&but_the_last))[..8], forward(&changed, Some(&but_the_last))[..8]);
    }

    #[test]
    fn heads_that_cannot_share_the_width_are_refused() {
        let error = MultiHeadAttention::new(&Path::root(), 10, 3).unwrap_err();
        assert_eq!(error, Error::bad_input("a width of 10 cannot be shared by 3 heads"));
    }
}
