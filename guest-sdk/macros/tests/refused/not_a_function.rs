#[weft_sdk::function]
struct Task;

fn main() {}
