#[derive(weft_sdk::HyperParameters)]
struct Parameters {
    /// How much is dropped.
    #[hyper(low = 0.0, high = 0.9)]
    dropout: f32,
}

fn main() {}
