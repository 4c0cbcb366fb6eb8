use weft_sdk::{Request, Response, Result};

struct Task;

impl Task {
    #[weft_sdk::function]
    fn handle(&self, request: Request) -> Result<Response> {
        Ok(Response::bytes(request.body))
    }
}

fn main() {}
