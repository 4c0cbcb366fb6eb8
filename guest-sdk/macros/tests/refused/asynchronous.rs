use weft_sdk::{Request, Response, Result};

#[weft_sdk::function]
async fn task(request: Request) -> Result<Response> {
    Ok(Response::bytes(request.body))
}

fn main() {}
