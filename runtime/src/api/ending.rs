//! The end of a deleted tenant's requests: whatever the node was doing for it is dropped at once, and what it was still
//! being sent breaks off.
//!
//! Who is calling is found out by the extractors of [`super::auth`], deep inside a request; [`Caller`] is where they tell.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::problem::ApiError;
use crate::tenant::Tenant;

/// Answers up to this are handed over in one piece, so there is nothing to break off.
const ONE_PIECE: u64 = 64 << 10;

/// The tenant that a request comes from, once that is known.
#[derive(Clone, Default)]
pub struct Caller(Arc<OnceLock<Arc<Tenant>>>);

impl Caller {
    /// Says who calls.
    pub fn tell(parts: &Parts, tenant: &Arc<Tenant>) {
        if let Some(Self(caller)) = parts.extensions.get::<Self>() {
            caller.get_or_init(|| tenant.clone());
        }
    }

    /// Waits until the caller is known, and then for its deletion. To be polled whenever the request was: nothing else
    /// wakes it when the caller becomes known.
    async fn ended(&self) {
        let known = poll_fn(|_| self.0.get().map_or(Poll::Pending, |tenant| Poll::Ready(tenant.clone())));
        known.await.ended().await;
    }
}

/// Answers a request, unless its tenant is deleted first.
pub async fn run<B, F>(mut request: Request<B>, answer: impl FnOnce(Request<B>) -> F) -> Response
where
    F: Future<Output = Result<Response, Infallible>>,
{
    let caller = Caller::default();
    request.extensions_mut().insert(caller.clone());
    let Ok(response) = tokio::select! {
        biased;
        response = answer(request) => response,
        () = caller.ended() => {
            let mut response = ApiError::tenant_deleted().into_response();
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
    };
    let is_one_piece = response.body().size_hint().exact().is_some_and(|bytes| bytes <= ONE_PIECE);
    match caller.0.get() {
        Some(tenant) if !is_one_piece => {
            let tenant = tenant.clone();
            let ended = Box::pin(async move { tenant.ended().await });
            response.map(|body| Body::new(UntilEnded { body, ended }))
        }
        _ => response,
    }
}

/// An answer that breaks off when its tenant is deleted.
struct UntilEnded {
    body: Body,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

#[derive(Debug, thiserror::Error)]
#[error("the tenant was deleted")]
struct TenantDeleted;

impl HttpBody for UntilEnded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(TenantDeleted))));
        }
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(context)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
