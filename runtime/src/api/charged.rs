//! Answers that grow with what a tenant has. They are counted for as long as they are on their way: a client need not read.
//! What is more than a thread of HTTP writes in a moment is written on another one, for which there is a gate.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;

use super::problem::ApiError;
use crate::node::Node;
use crate::tenant::{Charge, ChargedBytes, OverLimit, Tenant};

/// Bytes of JSON that are written on the thread that received the request: a hundred microseconds or so.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// About what an item of a list takes, beside texts of no fixed length.
pub const ITEM: usize = 512;

/// What `make` gives as JSON, charged to the tenant until its client has it. It is about so many bytes.
pub async fn charged<T: Serialize>(
    node: &Node,
    tenant: &Tenant,
    expected: usize,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, ApiError> {
    let charge = Charge::none(tenant.memory.clone());
    let json = match expected <= WRITTEN_AT_ONCE {
        true => ChargedBytes::json_answer(&make(), charge),
        false => {
            let place = node.places.answer(tenant).await?;
            let write = move || {
                let _place = place;
                ChargedBytes::json_answer(&make(), charge)
            };
            let written = tokio::task::spawn_blocking(write).await;
            written.map_err(|error| anyhow::Error::new(error).context("writing an answer"))?
        }
    };
    let json = json.map_err(|error| match error.downcast::<OverLimit>() {
        Ok(over) => ApiError::from(over),
        Err(error) => ApiError::internal(&error),
    })?;
    Ok(([(CONTENT_TYPE, "application/json")], Bytes::from_owner(json)).into_response())
}
