use weft_sdk::{Response, Result};

#[weft_sdk::function]
fn task() -> Result<Response> {
    Ok(Response::text("hello"))
}

fn main() {}
