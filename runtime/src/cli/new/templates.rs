//! The files of a new project that are its own. `{name}` stands for the function's.

pub const MANIFEST: &str = r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"
publish = false

[lib]
crate-type = ["cdylib"]

[dependencies]
weft-sdk = { path = "vendor/weft-sdk" }

# Small components upload, compile and start faster.
[profile.release]
opt-level = "s"
lto = true
codegen-units = 1

# A workspace of its own, also when it lies inside another.
[workspace]
"#;

pub const TASK: &str = r#"//! {name}: counts the words of a text.

use weft_sdk::{Request, Response, Result};

/// Called once per request, each time in a fresh instance: nothing is left of the request before.
#[weft_sdk::function]
fn handle(request: Request) -> Result<Response> {
    // A body that is not text is the caller's mistake, and `?` tells them so.
    let words = request.text()?.split_whitespace().count();
    // Logged lines are kept on the node; `weft logs {name}` shows them.
    weft_sdk::info!("counted {words} words");
    Ok(Response::text(format!("{words}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Plain `cargo test` runs this natively, without a node.
    #[test]
    fn words_are_counted() {
        let request = Request { body: b"three little words".to_vec(), ..Request::default() };
        assert_eq!(handle(request), Ok(Response::text("3\n")));
    }
}
"#;

pub const TASK_README: &str = r#"# {name}

A function for Weft.

```
weft serve --dev                               # a node on this machine, in another terminal
weft deploy . --name {name}                    # builds the function and puts it on the node
weft invoke {name} --data "three little words"
weft logs {name}
```

`vendor/` holds the SDK that the function is built with, as it came with the `weft` that made this project.
"#;

pub const TRAINER: &str = r#"//! {name}: tells classes apart by a hidden layer and a linear one.

use weft_sdk::nn::{Activation, Dropout, Linear, LinearConfig, Mode};
use weft_sdk::optim::Adam;
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

/// What can be chosen for each training, with `--param hidden=128`.
#[derive(HyperParameters)]
struct Parameters {
    /// How many numbers a sample has.
    #[hyper(default = 64, low = 1)]
    features: u32,
    /// How many classes there are.
    #[hyper(default = 10, low = 2)]
    classes: u32,
    /// How wide the hidden layer is.
    #[hyper(default = 64, low = 1, high = 65536, log)]
    hidden: u32,
    /// How much of the hidden layer is dropped in training.
    #[hyper(default = 0.1, low = 0.0, high = 0.9)]
    dropout: f32,
}

struct Classifier {
    hidden: Linear,
    dropout: Dropout,
    last: Linear,
}

/// Tells classes apart by a hidden layer and a linear one.
#[weft_sdk::trainer]
impl Trainer for Classifier {
    type Parameters = Parameters;

    /// Declares the model. Its tensors stay with the host: this instance may be replaced between any two calls.
    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { features, classes, hidden, dropout } = parameters;
        // The host applies it after each step.
        Adam::default().declare()?;
        Ok(Self {
            hidden: LinearConfig::new(features, hidden).activation(Activation::Relu).init(&path.at("hidden"))?,
            dropout: Dropout(dropout),
            last: Linear::new(&path.at("last"), hidden, classes)?,
        })
    }

    /// What the model makes of samples, a row for each. Loss, step, evaluation and inference follow from it.
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor> {
        let hidden = self.hidden.forward(&x.flatten()?)?;
        self.last.forward(&self.dropout.forward(&hidden, mode)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Plain `cargo test` runs this natively; what computes with tensors runs in `weft train-local`.
    #[test]
    fn everything_has_a_default() {
        let parameters = Parameters::parse(Vec::new()).unwrap();
        assert_eq!((parameters.features, parameters.classes), (64, 10));
    }
}
"#;

pub const TRAINER_README: &str = r#"# {name}

A training function for Weft.

```
weft train-local . --dataset digits                     # builds it, trains it, writes {name}.safetensors
weft infer . --model {name}.safetensors --dataset digits
weft train-local . --dataset digits --param hidden=256  # another size
```

On your own data: `weft train-local . --data flowers.csv --split 0.8 --param features=4 --param classes=3`.

`vendor/` holds the SDK that the function is built with, as it came with the `weft` that made this project.
"#;
