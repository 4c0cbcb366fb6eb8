use weft_sdk::{Request, Response, Result};

#[weft_sdk::function]
fn task(request: Request, worker: String) -> Result<Response> {
    drop(worker);
    Ok(Response::bytes(request.body))
}

fn main() {}
