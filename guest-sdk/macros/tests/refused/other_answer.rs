use weft_sdk::{Request, Result};

#[weft_sdk::function]
fn task(request: Request) -> Result<String> {
    Ok(request.content_type)
}

fn main() {}
