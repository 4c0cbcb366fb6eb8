use weft_sdk::{Response, Result};

#[weft_sdk::function]
fn task(request: String) -> Result<Response> {
    Ok(Response::text(request))
}

fn main() {}
