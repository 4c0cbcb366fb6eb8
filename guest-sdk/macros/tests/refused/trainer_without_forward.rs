use weft_sdk::{Path, Result, Trainer};

struct Model;

#[weft_sdk::trainer]
impl Trainer for Model {
    type Parameters = ();

    fn init((): (), _: &Path) -> Result<Self> {
        Ok(Self)
    }
}

fn main() {}
