#[derive(weft_sdk::HyperParameters)]
struct Parameters {
    #[hyper(default = 1.5, low = 0.0, high = 0.9)]
    dropout: f32,
    #[hyper(default = 0, low = 1)]
    layers: u32,
}

fn main() {}
