//! A small BERT: an encoder that normalizes after each sum, and a linear layer on its first place.

use super::layer::{Builder, Embedding, LayerNorm, Linear, Network, Pass};
use crate::error::{Error, Result};
use crate::op::Unary;
use crate::tensor::Tensor;

pub(super) const TOKENS: usize = 128;
pub(super) const WORDS: usize = 30_522;
const WIDTH: usize = 512;
const LAYERS: usize = 4;
const HEADS: usize = 8;
const DROPOUT: f32 = 0.1;

pub(super) struct Bert {
    words: Embedding,
    places: Embedding,
    layers: Vec<Layer>,
    last: Linear,
}

struct Layer {
    attention: Attention,
    norm_after_attention: LayerNorm,
    widen: Linear,
    narrow: Linear,
    norm_after_linear: LayerNorm,
}

struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
}

impl Attention {
    fn declare(builder: &mut Builder, path: &str) -> Self {
        let [query, key, value] = builder.linear_parts(path, ["query", "key", "value"], WIDTH, WIDTH);
        Self { query, key, value, output: builder.linear(&format!("{path}.out_proj"), WIDTH, WIDTH) }
    }

    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let &[batch, tokens, width] = &*x.shape() else {
            return Err(Error::shape("attention", format!("{:?} is not [batch, tokens, width]", x.shape())));
        };
        let depth = width / HEADS;
        // The heads beside each other, `[batch, head, token, depth]`: a view, which products take as it is.
        let heads = |projection: &Linear| -> Result<Tensor> {
            projection.forward(x, None, pass)?.reshape(&[batch, tokens, HEADS, depth])?.permute(&[0, 2, 1, 3])
        };
        let (query, key, value) = (heads(&self.query)?, heads(&self.key)?, heads(&self.value)?);
        let scores = query.scaled_matmul(&key.transposed()?, 1.0 / (depth as f32).sqrt())?;
        let weights = pass.dropout(&scores.softmax()?, DROPOUT)?;
        let mixed = weights.matmul(&value)?.permute(&[0, 2, 1, 3])?.reshape(&[batch, tokens, width])?;
        self.output.forward(&mixed, None, pass)
    }
}

impl Layer {
    fn declare(builder: &mut Builder, path: &str) -> Self {
        Self {
            attention: Attention::declare(builder, &format!("{path}.self_attn")),
            widen: builder.linear(&format!("{path}.linear1"), WIDTH, 4 * WIDTH),
            narrow: builder.linear(&format!("{path}.linear2"), 4 * WIDTH, WIDTH),
            norm_after_attention: builder.layer_norm(&format!("{path}.norm1"), WIDTH),
            norm_after_linear: builder.layer_norm(&format!("{path}.norm2"), WIDTH),
        }
    }

    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let attended = self.attention.forward(x, pass)?;
        let x = x.add(&pass.dropout(&attended, DROPOUT)?)?;
        let x = self.norm_after_attention.forward(&x, pass)?;
        let wide = self.widen.forward(&x, Some(Unary::Gelu), pass)?;
        let narrow = self.narrow.forward(&pass.dropout(&wide, DROPOUT)?, None, pass)?;
        let x = x.add(&pass.dropout(&narrow, DROPOUT)?)?;
        self.norm_after_linear.forward(&x, pass)
    }
}

impl Bert {
    pub(super) fn declare(builder: &mut Builder) -> Self {
        Self {
            words: builder.embedding("word", WORDS, WIDTH),
            places: builder.embedding("place", TOKENS, WIDTH),
            layers: (0..LAYERS).map(|index| Layer::declare(builder, &format!("body.layers.{index}"))).collect(),
            last: builder.linear("head", WIDTH, 2),
        }
    }
}

impl Network for Bert {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        // Every place is used, in order: their table is added as it is.
        let mut x = self.words.forward(x, pass)?.add(self.places.table(pass))?;
        for layer in &self.layers {
            x = layer.forward(&x, pass)?;
        }
        let first = x.narrow(1, 0, 1)?.reshape(&[x.shape()[0], WIDTH])?;
        self.last.forward(&first, None, pass)
    }
}
