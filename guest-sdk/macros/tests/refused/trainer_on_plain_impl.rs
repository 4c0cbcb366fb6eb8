struct Model;

#[weft_sdk::trainer]
impl Model {
    fn forward(&self) {}
}

fn main() {}
