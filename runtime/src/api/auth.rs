//! Who is calling: extractors that every handler names in its arguments, so that a route without one is easy to see.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::connection::Connection;
use super::ending::Caller;
use super::problem::{ApiError, Kind};
use crate::node::Node;
use crate::tenant::{Answering, Principal, Tenant};

/// A tenant, within its request rate.
pub struct AsTenant(pub Arc<Tenant>);

/// The operator.
pub struct AsOperator;

fn authenticate(headers: &HeaderMap, node: &Node) -> Result<Principal, ApiError> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key =
        header.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    node.authenticate(key.map(|(_, key)| key.trim()))
        .ok_or_else(|| ApiError::new(Kind::Unauthenticated, "send `Authorization: Bearer KEY` with a key of this node"))
}

/// Whether the caller is still this tenant, for answers that go on for long: its key may be another by now.
pub fn is_still(tenant: &Tenant, headers: &HeaderMap, node: &Node) -> bool {
    match authenticate(headers, node) {
        Ok(Principal::Tenant(now) | Principal::Developer(now)) => now.id == tenant.id,
        Ok(Principal::Operator) | Err(_) => false,
    }
}

impl FromRequestParts<Arc<Node>> for AsTenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, ApiError> {
        let tenant = match authenticate(&parts.headers, node)? {
            Principal::Tenant(tenant) | Principal::Developer(tenant) => tenant,
            Principal::Operator => {
                return Err(ApiError::new(Kind::Forbidden, "this is a tenant's route: use a tenant's key"));
            }
        };
        Caller::tell(parts, &tenant);
        let rate = tenant.quota().requests_per_second;
        tenant.rate.take(rate).map_err(|wait| {
            let detail = format!("more than `requests_per_second` = {rate}");
            ApiError::new(Kind::RateLimited, detail).limit("requests_per_second").retry_after(wait.as_secs() + 1)
        })?;
        let most = node.settings.connections_per_tenant();
        let answering = tenant.requests.begin(most).ok_or_else(|| {
            let detail = format!("`max_connections_per_tenant` = {most} requests of this tenant are being answered");
            ApiError::new(Kind::RateLimited, detail).limit("max_connections_per_tenant").retry_after(1)
        })?;
        hold(parts, Some(answering))?;
        Ok(Self(tenant))
    }
}

/// Keeps the connection of a request that has shown a key until the request is answered.
fn hold(parts: &Parts, counted: Option<Answering>) -> Result<(), ApiError> {
    match parts.extensions.get::<Arc<Connection>>().is_none_or(|connection| connection.hold(counted)) {
        true => Ok(()),
        false => {
            Err(ApiError::new(Kind::Busy, "this connection is being closed to make room").limit("max_connections"))
        }
    }
}

impl FromRequestParts<Arc<Node>> for AsOperator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, ApiError> {
        match authenticate(&parts.headers, node)? {
            Principal::Operator | Principal::Developer(_) => hold(parts, None).map(|()| Self),
            Principal::Tenant(_) => Err(ApiError::new(Kind::Forbidden, "this is the operator's route")),
        }
    }
}
