//! What a task gets and gives: bytes with a media type.
//!
//! Nothing here reads or writes JSON; a function that wants it picks its own crate for it, or none.

use crate::{Context, Result};

/// What a caller sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The media type of the body, as the caller named it; empty when it named none.
    pub content_type: String,
    pub body: Vec<u8>,
}

impl Request {
    /// The body as text; [`Error::BadInput`](crate::Error::BadInput) when it is not UTF-8.
    ///
    /// ```
    /// # use weft_sdk::Request;
    /// let request = Request { body: b"3 4".to_vec(), ..Request::default() };
    /// assert_eq!(request.text(), Ok("3 4"));
    /// ```
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.body).bad_input("the body is not UTF-8 text")
    }
}

/// What a task answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The media type of the body; empty means `application/octet-stream`.
    pub content_type: String,
    pub body: Vec<u8>,
}

impl Response {
    /// Any bytes, and what they are.
    pub fn new(content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { content_type: content_type.into(), body: body.into() }
    }

    /// Plain text.
    pub fn text(body: impl Into<String>) -> Self {
        Self::new("text/plain; charset=utf-8", body.into())
    }

    /// JSON that has been written already: a `String`, or the bytes that `serde_json::to_vec` gives.
    pub fn json(body: impl Into<Vec<u8>>) -> Self {
        Self::new("application/json", body)
    }

    /// Bytes of no particular type.
    pub fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self::new("application/octet-stream", body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_body_that_is_not_text_is_the_callers_fault() {
        let request = Request { body: vec![b'a', 0xff], ..Request::default() };
        assert!(matches!(request.text(), Err(Error::BadInput(message)) if message.contains("index 1")));
    }
}
