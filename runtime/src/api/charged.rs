//! Answers that grow with what a tenant has. They are counted for as long as they are on their way: a client need not read.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;

use super::problem::ApiError;
use crate::tenant::{Charge, ChargedBytes, OverLimit, Tenant};

/// JSON, charged to the tenant until its client has it.
pub fn charged(tenant: &Tenant, value: &impl Serialize) -> Result<Response, ApiError> {
    let json = ChargedBytes::json_answer(value, Charge::none(tenant.memory.clone()));
    let json = json.map_err(|error| match error.downcast::<OverLimit>() {
        Ok(over) => ApiError::from(over),
        Err(error) => ApiError::internal(&error),
    })?;
    Ok(([(CONTENT_TYPE, "application/json")], Bytes::from_owner(json)).into_response())
}
