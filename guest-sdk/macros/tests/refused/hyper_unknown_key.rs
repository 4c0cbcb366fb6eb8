#[derive(weft_sdk::HyperParameters)]
struct Parameters {
    #[hyper(default = 0.1, maximum = 0.9)]
    dropout: f32,
}

fn main() {}
