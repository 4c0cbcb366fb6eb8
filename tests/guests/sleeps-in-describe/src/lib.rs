//! A trainer that waits in WASI, for as long as it can be asked to, when it is asked to describe itself.

use weft_sdk::hyper::{HyperParameter, Setting};
use weft_sdk::nn::{Linear, Mode};
use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};

#[path = "../../sleep.rs"]
mod sleep;

struct Parameters;

impl HyperParameters for Parameters {
    fn describe() -> Vec<HyperParameter> {
        sleep::for_ever();
        Vec::new()
    }

    fn parse(_: Vec<Setting>) -> Result<Self> {
        Ok(Self)
    }
}

struct Sleeper(Linear);

/// Never says what it is.
#[weft_sdk::trainer]
impl Trainer for Sleeper {
    type Parameters = Parameters;

    fn init(_: Parameters, path: &Path) -> Result<Self> {
        Ok(Self(Linear::new(path, 20, 2)?))
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.0.forward(x)
    }
}
