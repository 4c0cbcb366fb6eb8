use weft_sdk::nn::Mode;
use weft_sdk::{Path, Result, Tensor, Trainer};

struct Model<T>(T);

#[weft_sdk::trainer]
impl<T: Default + 'static> Trainer for Model<T> {
    type Parameters = ();

    fn init((): (), _: &Path) -> Result<Self> {
        Ok(Self(T::default()))
    }

    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        Ok(x.clone())
    }
}

fn main() {}
