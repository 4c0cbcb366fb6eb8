#[derive(weft_sdk::HyperParameters)]
struct Parameters(f32);

fn main() {}
