use weft_sdk::{Request, Response, Result};

#[weft_sdk::function(loud_panics)]
fn task(request: Request) -> Result<Response> {
    Ok(Response::bytes(request.body))
}

fn main() {}
