//! The body of an answer. It is dropped when its last piece is handed over to be sent, or when it is given up; when all of
//! it is sent is for the stream below to say, see [`super::half_close`].

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::api::RequestOn;

pub struct Answer {
    body: Body,
    _request: RequestOn,
}

impl Answer {
    pub fn new(body: Body, request: RequestOn) -> Self {
        Self { body, _request: request }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
