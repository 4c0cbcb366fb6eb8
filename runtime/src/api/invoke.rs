//! Invocation: body in, body out.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{self, FromRequest, FromRequestParts, Path, State};
use axum::http::Method;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::auth::AsTenant;
use super::problem::{ApiError, Kind};
use super::request::Pieces;
use super::types::Problem;
use crate::host::Request;
use crate::logs::invocation_id;
use crate::names::is_name;
use crate::node::{Invoked, Node, Receipt};
use crate::sandbox::Answer;
use crate::tenant::{Charge, ChargedBytes, Spent};

const SEED: HeaderName = HeaderName::from_static("weft-seed");
const INVOCATION: HeaderName = HeaderName::from_static("weft-invocation");
const VERSION: HeaderName = HeaderName::from_static("weft-version");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Headers of an answer, those that others add included.
const HEADERS: usize = 8;
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// Bytes of a function's content type; clients and proxies choke on headers that are much longer.
const MAX_CONTENT_TYPE: usize = 256;

/// Call a function: it gets the body and its content type, and answers with its own.
#[utoipa::path(
    post, path = "/v1/functions/{name}/invoke", tag = "functions", operation_id = "invoke",
    params(
        ("name" = String, Path),
        ("weft-seed" = Option<u64>, Header, description = "The seed of the invocation's randomness; random if absent"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The function's answer", body = Vec<u8>, content_type = "application/octet-stream",
            headers(
                ("weft-invocation" = String, description = "The id of this invocation"),
                ("weft-version" = String, description = "The version that ran"),
                ("weft-seed" = u64, description = "The seed of the randomness it had"),
                ("server-timing" = String, description = "`cold`: making the instance; `run`: all of it; in milliseconds"),
            )),
        (status = 422, description = "The function answered with an error", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too many at once: see Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 502, description = "The function trapped or exceeded a limit", body = Problem, content_type = "application/problem+json"),
        (status = 504, description = "The function took too long", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn invoke(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Seed(seed): Seed,
    pieces: Pieces,
) -> Result<Response, ApiError> {
    // An unknown name is refused before its body is kept.
    if let Err(error) = node.registry.get(tenant.id, &name) {
        return Err(pieces.refuse(error).await);
    }
    let mut charge = Charge::none(tenant.memory.clone());
    let content_type = pieces.content_type().unwrap_or_default().to_owned();
    let body = pieces.read(node.settings.max_body.0, "max_body", &mut charge).await?;
    let invoked = node.invoke(&tenant, &name, Request { content_type, body }, seed, charge).await?;
    Ok(answer(invoked))
}

/// The name of the function that a request invokes, if it does and the name is one. All else is for the router to answer.
pub fn target<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    let name = path.strip_prefix("/v1/functions/")?.strip_suffix("/invoke")?;
    (method == Method::POST && is_name(name)).then_some(name)
}

/// Answers an invocation as the router would, without the boxes and copies that every request costs there: they were a tenth
/// of all that the call of a small function takes.
pub async fn direct(node: Arc<Node>, name: String, request: extract::Request) -> Response {
    let answer = async {
        let (mut parts, body) = request.into_parts();
        let tenant = AsTenant::from_request_parts(&mut parts, &node).await?;
        let seed = Seed::from_request_parts(&mut parts, &node).await?;
        let Ok(pieces) = Pieces::from_request(extract::Request::from_parts(parts, body), &node).await;
        invoke(tenant, State(node), Path(name), seed, pieces).await
    };
    answer.await.unwrap_or_else(ApiError::into_response)
}

/// The seed that the caller wants. Not all headers, which would have to be copied.
pub struct Seed(Option<u64>);

impl<S: Sync> FromRequestParts<S> for Seed {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(SEED) else { return Ok(Self(None)) };
        let seed = value.to_str().ok().and_then(|text| text.trim().parse().ok());
        let wrong = || ApiError::new(Kind::InvalidRequest, "`weft-seed` must be a number from 0 to 2^64 - 1");
        seed.map(|seed| Self(Some(seed))).ok_or_else(wrong)
    }
}

fn answer(invoked: Invoked) -> Response {
    let Invoked { answer: Answer { response, charge }, receipt } = invoked;
    let mut answer = Response::new(Body::from(Bytes::from_owner(ChargedBytes::new(response.body, charge))));
    let content_type = match response.content_type.as_str() {
        given if given.is_empty() || given.len() > MAX_CONTENT_TYPE => DEFAULT_CONTENT_TYPE,
        given => given,
    };
    // A content type that is too long, or is not a header value, is the function's to mend; the bytes are still good.
    let content_type = HeaderValue::from_str(content_type);
    let content_type = content_type.unwrap_or(HeaderValue::from_static(DEFAULT_CONTENT_TYPE));
    let headers = answer.headers_mut();
    // Room for all headers at once: a map that grows puts them in again.
    headers.reserve(HEADERS);
    headers.insert(CONTENT_TYPE, content_type);
    describe(headers, &receipt);
    answer
}

fn describe(headers: &mut HeaderMap, receipt: &Receipt) {
    headers.insert(SEED, receipt.seed.into());
    for (name, text) in [
        (INVOCATION, invocation_id(receipt.invocation)),
        (VERSION, receipt.version.to_string()),
        (SERVER_TIMING, server_timing(&receipt.spent)),
    ] {
        // Digits and letters of our own: always a header value.
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
}

/// Integers in one go: this is on every answer's path, and printing a float takes a microsecond.
fn server_timing(spent: &Spent) -> String {
    let parts =
        |time: Duration| (time.as_secs() * 1_000 + u64::from(time.subsec_millis()), time.subsec_micros() % 1_000);
    let ((cold, cold_us), (run, run_us)) = (parts(spent.cold_start), parts(spent.wall));
    format!("cold;dur={cold}.{cold_us:03}, run;dur={run}.{run_us:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_plainly_an_invocation_passes_by_the_router() {
        assert_eq!(target(&Method::POST, "/v1/functions/echo-2/invoke"), Some("echo-2"));
        for path in [
            "/v1/functions//invoke",
            "/v1/functions/Echo/invoke",
            "/v1/functions/%65cho/invoke",
            "/v1/functions/echo/invoke/",
            "/v1/functions/echo/versions/invoke",
            "/v1/functions/invoke",
            "/v1/functions/echo/logs",
            "//v1/functions/echo/invoke",
        ] {
            assert_eq!(target(&Method::POST, path), None, "{path}");
        }
        assert_eq!(target(&Method::GET, "/v1/functions/echo/invoke"), None);
    }
}
