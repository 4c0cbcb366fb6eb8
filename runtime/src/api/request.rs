//! Reading requests: bodies within a size, within a time, counted before they are held; queries with an error that says
//! what does not fit.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::problem::{ApiError, Kind};
use crate::tenant::Charge;

/// The largest JSON request.
const MAX_JSON: usize = 64 << 10;

/// A query string as a type.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => {
                Err(ApiError::new(Kind::InvalidRequest, format!("the query does not fit: {}", error.body_text())))
            }
        }
    }
}

/// A body that arrives piece by piece, from a client that has only so long.
pub struct Pieces {
    body: Body,
    deadline: Instant,
    limit: Duration,
}

impl Pieces {
    pub fn new(body: Body, limit: Duration) -> Self {
        Self { body, deadline: Instant::now() + limit, limit }
    }

    /// How much the client has said that it will send, if it has.
    pub fn announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next piece, or nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = tokio::time::timeout_at(self.deadline, self.body.frame()).await.map_err(|_| {
                let seconds = self.limit.as_secs();
                let detail = format!("the request's body took longer than `body_timeout` = {seconds} s");
                ApiError::new(Kind::Timeout, detail).limit("body_timeout")
            })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| {
                ApiError::new(Kind::InvalidRequest, format!("the request's body broke off: {error}"))
            })?;
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
    }
}

/// Reads a whole body of at most `max` bytes, charged to `charge`.
pub async fn read(
    mut pieces: Pieces,
    max: u64,
    max_name: &'static str,
    charge: &mut Charge,
) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        let detail = format!("the body is larger than `{max_name}` = {max} bytes");
        ApiError::new(Kind::TooLarge, detail).limit(max_name)
    };
    // Refused before it is sent, so that the client is still there to hear it.
    if pieces.announced().is_some_and(|announced| announced > max) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await? {
        if (bytes.len() + piece.len()) as u64 > max {
            return Err(too_large());
        }
        charge.grow(piece.len() as u64)?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Reads a small JSON body; an empty one counts as `{}`.
pub async fn read_json<T: DeserializeOwned>(mut pieces: Pieces) -> Result<T, ApiError> {
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await? {
        if bytes.len() + piece.len() > MAX_JSON {
            return Err(ApiError::new(Kind::TooLarge, format!("the JSON is larger than {MAX_JSON} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text)
        .map_err(|error| ApiError::new(Kind::InvalidRequest, format!("the JSON does not fit: {error}")))
}
