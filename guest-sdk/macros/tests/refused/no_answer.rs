use weft_sdk::Request;

#[weft_sdk::function]
fn task(request: Request) {
    drop(request);
}

fn main() {}
