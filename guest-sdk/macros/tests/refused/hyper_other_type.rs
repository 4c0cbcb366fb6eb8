#[derive(weft_sdk::HyperParameters)]
struct Parameters {
    #[hyper(default = Vec::new())]
    widths: Vec<u32>,
}

fn main() {}
