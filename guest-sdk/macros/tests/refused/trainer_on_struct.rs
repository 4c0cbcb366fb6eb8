#[weft_sdk::trainer]
struct Model;

fn main() {}
