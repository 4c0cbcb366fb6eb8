use weft_sdk::{Request, Response, Result};

#[weft_sdk::function]
fn task<T>(request: Request) -> Result<Response> {
    Ok(Response::bytes(request.body))
}

fn main() {}
