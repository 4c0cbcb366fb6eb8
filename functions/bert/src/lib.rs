//! A BERT that tells texts apart: an encoder that normalizes after each sum, and a linear layer on its first token.
//!
//! 28,303,362 parameters with four layers 512 wide, eight heads, 128 places, 30,522 words and two classes. A sample is
//! a row of token numbers. From random weights it learns which words matter and little of how they
//! are put together; for more it needs weights from pre-training.

use weft_sdk::nn::{Activation, Dropout, Embedding, LayerNorm, Linear, LinearConfig, Mode};
use weft_sdk::nn::{MultiHeadAttention, MultiHeadAttentionConfig};
use weft_sdk::optim::{AdamW, Sgd};
use weft_sdk::{Error, HyperParameters, Path, Result, Tensor, Trainer};

#[derive(HyperParameters)]
struct Parameters {
    /// How many encoder layers there are.
    #[hyper(default = 4, low = 1, high = 48)]
    layers: u32,
    /// How many numbers a token is; a multiple of the heads.
    #[hyper(default = 512, low = 1, high = 4096, log)]
    width: u32,
    /// How many ways there are for tokens to attend to each other.
    #[hyper(default = 8, low = 1, high = 64)]
    heads: u32,
    /// How many words there are.
    #[hyper(default = 30522, low = 1)]
    words: u32,
    /// How many tokens a text has at most.
    #[hyper(default = 128, low = 1, high = 4096)]
    tokens: u32,
    /// How many classes there are.
    #[hyper(default = 2, low = 2)]
    classes: u32,
    /// How much is dropped in training, after each part of a layer.
    #[hyper(default = 0.1, low = 0.0, high = 0.9)]
    dropout: f32,
    /// How weights follow their gradients.
    #[hyper(default = "sgd", choices = ["sgd", "adamw"])]
    optimizer: String,
    /// Of SGD: how much of a step goes on in the direction of those before.
    #[hyper(default = 0.9, low = 0.0, high = 0.999)]
    momentum: f32,
    /// How far weights are pulled to zero.
    #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
    weight_decay: f32,
}

struct Bert {
    words: Embedding,
    places: Embedding,
    layers: Vec<EncoderLayer>,
    last: Linear,
}

/// A BERT that tells texts apart.
#[weft_sdk::trainer]
impl Trainer for Bert {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { layers, width, heads, words, tokens, classes, dropout, optimizer, momentum, weight_decay } =
            parameters;
        match optimizer.as_str() {
            "adamw" => AdamW { weight_decay, ..AdamW::default() }.declare()?,
            _ => Sgd { momentum, weight_decay, ..Sgd::default() }.declare()?,
        }
        let words = Embedding::new(&path.at("word"), words, width)?;
        let places = Embedding::new(&path.at("place"), tokens, width)?;
        let body = path.at("body").at("layers");
        let layers = (0..layers)
            .map(|index| EncoderLayer::new(&body.at(index), width, heads, dropout))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { words, places, layers, last: Linear::new(&path.at("head"), width, classes)? })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let (tokens, places) = (x.size(1), self.places.weight.size(0));
        let mut x = self.words.forward(x)?;
        x = match tokens {
            // Every place is used, in order: their table is added as it is.
            _ if tokens == places => x.add(&self.places.weight)?,
            _ if tokens < places => x.add(&self.places.weight.narrow(0, 0, tokens)?)?,
            _ => return Err(Error::bad_input(format!("a text has at most {places} tokens, not {tokens}"))),
        };
        for layer in &self.layers {
            x = layer.forward(&x, mode)?;
        }
        let first = x.narrow(1, 0, 1)?.reshape(&[x.size(0), x.size(2)])?;
        self.last.forward(&first)
    }
}

struct EncoderLayer {
    attention: MultiHeadAttention,
    widen: Linear,
    narrow: Linear,
    norm_after_attention: LayerNorm,
    norm_after_linear: LayerNorm,
    dropout: Dropout,
}

impl EncoderLayer {
    fn new(path: &Path, width: u32, heads: u32, dropout: f32) -> Result<Self> {
        let attention = MultiHeadAttentionConfig::new(width, heads).dropout(dropout);
        Ok(Self {
            attention: attention.init(&path.at("self_attn"))?,
            widen: LinearConfig::new(width, 4 * width).activation(Activation::Gelu).init(&path.at("linear1"))?,
            narrow: Linear::new(&path.at("linear2"), 4 * width, width)?,
            norm_after_attention: LayerNorm::new(&path.at("norm1"), width)?,
            norm_after_linear: LayerNorm::new(&path.at("norm2"), width)?,
            dropout: Dropout(dropout),
        })
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let dropped = |x: &Tensor| self.dropout.forward(x, mode);
        let attended = self.attention.forward(x, None, mode)?;
        let x = self.norm_after_attention.forward(&x.add(&dropped(&attended)?)?)?;
        let narrow = self.narrow.forward(&dropped(&self.widen.forward(&x)?)?)?;
        self.norm_after_linear.forward(&x.add(&dropped(&narrow)?)?)
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::hyper::Value;
    use weft_sdk::native::{Batch, Session};

    use super::*;

    #[test]
    fn it_has_the_parameters_of_pytorch() {
        let session = Session::<Bert>::new(&[]).unwrap();
        assert_eq!(session.parameters(), 28_303_362);
        assert_eq!(
            session.names()[..4],
            [
                "word.weight",
                "place.weight",
                "body.layers.0.self_attn.in_proj_weight.query",
                "body.layers.0.self_attn.in_proj_weight.key",
            ]
        );
    }

    #[test]
    fn a_small_one_overfits_texts_that_are_shorter_than_its_places() {
        let settings = [
            ("layers", Value::Integer(2)),
            ("width", Value::Integer(32)),
            ("heads", Value::Integer(4)),
            ("words", Value::Integer(50)),
            ("tokens", Value::Integer(16)),
            ("dropout", Value::Real(0.0)),
            ("optimizer", Value::Text("adamw".into())),
        ];
        let mut session = Session::<Bert>::new(&settings).unwrap();
        let tokens: Vec<f32> = (0..80).map(|place| (place * 7 % 53 % 50) as f32).collect();
        let batch =
            Batch::new(Tensor::new(&tokens, &[8, 10]).unwrap(), Tensor::new(&[0, 1, 1, 0, 1, 0, 0, 1], &[8]).unwrap());
        for _ in 0..60 {
            session.step(&batch, 0.003).unwrap();
        }
        let metrics = session.evaluate(&batch).unwrap();
        assert!(metrics["loss"] < 0.05 && metrics["accuracy"] == 1.0, "{metrics:?}");
        let long = Batch::unlabelled(Tensor::zeros(&[1, 17]).unwrap());
        assert!(session.infer(&long).unwrap_err().message().contains("at most 16 tokens"));
    }
}
