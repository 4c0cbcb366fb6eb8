use weft_sdk::nn::Mode;
use weft_sdk::{Path, Result, Tensor, Trainer};

struct Model;

#[weft_sdk::trainer(concave)]
impl Trainer for Model {
    type Parameters = ();

    fn init((): (), _: &Path) -> Result<Self> {
        Ok(Self)
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
