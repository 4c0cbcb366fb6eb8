//! Reading requests: bodies within a size, within a time, counted before they are held; queries with an error that says
//! what does not fit.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, EXPECT};
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use tokio::time::Instant;

use super::problem::{ApiError, Kind};
use crate::node::Node;
use crate::tenant::{Charge, OverLimit};

/// The largest JSON request.
const MAX_JSON: u64 = 64 << 10;
/// How much of a body that was refused is still read, so that the client gets to hear of it.
const DISCARD_BYTES: usize = 64 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The longest text in a query that names are compared with, in characters: far longer than any name.
pub const MAX_CURSOR: usize = 1_024;

/// Reads such a text.
pub fn beginning<'de, D: Deserializer<'de>>(query: D) -> Result<String, D::Error> {
    let text = String::deserialize(query)?;
    match text.chars().count() {
        0..=MAX_CURSOR => Ok(text),
        length => Err(D::Error::custom(format!("{length} characters of a name, and none has more than {MAX_CURSOR}"))),
    }
}

/// Reads the name after which a page begins.
pub fn cursor<'de, D: Deserializer<'de>>(query: D) -> Result<Option<String>, D::Error> {
    beginning(query).map(Some)
}

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
    /// The client sends nothing before it is told to go on.
    waits: bool,
    content_type: Option<HeaderValue>,
}

impl FromRequest<Arc<Node>> for Pieces {
    type Rejection = Infallible;

    async fn from_request(request: Request, node: &Arc<Node>) -> Result<Self, Infallible> {
        let limit = node.settings.body_timeout.0;
        let waits = request.headers().contains_key(EXPECT);
        let content_type = request.headers().get(CONTENT_TYPE).cloned();
        Ok(Self { body: request.into_body(), deadline: Instant::now() + limit, limit, waits, content_type })
    }
}

impl Pieces {
    /// What the client says that the body is, if it says so in text.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_ref().and_then(|value| value.to_str().ok())
    }

    /// How much the client has said that it will send, if it has.
    pub fn announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next piece, or nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        self.waits = false;
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

    /// Refuses the rest. A client that is in the middle of sending hears an answer only after it has sent, so some of the
    /// rest is read and dropped; one that waits to be told to go on is answered at once.
    pub async fn refuse(mut self, error: impl Into<ApiError>) -> ApiError {
        if !self.waits {
            self.deadline = self.deadline.min(Instant::now() + DISCARD_TIME);
            let mut dropped = 0;
            while dropped < DISCARD_BYTES
                && let Ok(Some(piece)) = self.next().await
            {
                dropped += piece.len();
            }
        }
        error.into()
    }

    /// A whole body of at most `max` bytes; `grow` is told of each piece before it is kept.
    async fn collect(
        mut self,
        max: u64,
        max_name: &'static str,
        mut grow: impl FnMut(u64) -> Result<(), OverLimit>,
    ) -> Result<Vec<u8>, ApiError> {
        let too_large = || {
            let detail = format!("the body is larger than `{max_name}` = {max} bytes");
            ApiError::new(Kind::TooLarge, detail).limit(max_name)
        };
        if self.announced().is_some_and(|announced| announced > max) {
            return Err(self.refuse(too_large()).await);
        }
        let mut bytes = Vec::new();
        // Whoever has said how much it sends has then sent it all: there is no end to wait for.
        while !self.body.is_end_stream()
            && let Some(piece) = self.next().await?
        {
            if (bytes.len() + piece.len()) as u64 > max {
                return Err(self.refuse(too_large()).await);
            }
            if let Err(over) = grow(piece.len() as u64) {
                return Err(self.refuse(over).await);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Reads a whole body of at most `max` bytes, charged to `charge`.
    pub async fn read(self, max: u64, max_name: &'static str, charge: &mut Charge) -> Result<Vec<u8>, ApiError> {
        self.collect(max, max_name, |bytes| charge.grow(bytes)).await
    }

    /// Refuses a body that does not say that it is JSON. A page of another origin can make a browser send a body of its
    /// choice, but not with this content type unless the node agrees, and it never does.
    pub async fn which_is_json(self) -> Result<Self, ApiError> {
        let given = self.content_type();
        let essence = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if self.announced() == Some(0) || essence.eq_ignore_ascii_case("application/json") {
            return Ok(self);
        }
        let quoted = |given: &str| format!("`{}`", given.chars().take(100).collect::<String>().escape_debug());
        let given = given.map_or_else(|| "none".to_owned(), quoted);
        let detail = format!(
            "a JSON body needs the header `Content-Type: application/json`; this request has {given} (curl needs `--json`, or \
             `-H 'content-type: application/json'`)"
        );
        Err(self.refuse(ApiError::new(Kind::MediaType, detail)).await)
    }

    /// Reads a small JSON body; an empty one counts as `{}`.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, ApiError> {
        let bytes = self.which_is_json().await?.collect(MAX_JSON, "max_json", |_| Ok(())).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text)
            .map_err(|error| ApiError::new(Kind::InvalidRequest, format!("the JSON does not fit: {error}")))
    }
}
