//! Answers with what it was sent: the smallest task, and the measuring stick of cold starts.
//!
//! ```text
//! $ echo -n hello | weft invoke echo
//! hello
//! ```

use weft_sdk::{Request, Response, Result};

#[weft_sdk::function]
fn echo(request: Request) -> Result<Response> {
    Ok(Response::new(request.content_type, request.body))
}
