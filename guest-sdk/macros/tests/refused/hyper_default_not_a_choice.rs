#[derive(weft_sdk::HyperParameters)]
struct Parameters {
    #[hyper(default = "20", choices = ["18", "34"])]
    depth: String,
}

fn main() {}
