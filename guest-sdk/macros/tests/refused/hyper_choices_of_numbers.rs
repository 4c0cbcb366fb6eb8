#[derive(weft_sdk::HyperParameters)]
struct Parameters {
    #[hyper(default = "18", choices = [18, 34])]
    depth: String,
}

fn main() {}
