//! A trainer that waits in WASI, for as long as it can be asked to, while it is being instantiated.

use weft_sdk::nn::{Linear, Mode};
use weft_sdk::{Path, Result, Tensor, Trainer};

#[path = "../../sleep.rs"]
mod sleep;

/// What a component's module exports by this name is run when it is instantiated.
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    sleep::for_ever();
}

struct Sleeper(Linear);

/// Never gets as far as being called.
#[weft_sdk::trainer]
impl Trainer for Sleeper {
    type Parameters = ();

    fn init((): (), path: &Path) -> Result<Self> {
        Ok(Self(Linear::new(path, 20, 2)?))
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        self.0.forward(x)
    }
}
