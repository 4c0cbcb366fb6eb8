//! Tenants, for the operator; and a tenant's view of itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::auth::{AsOperator, AsTenant};
use super::functions::Page;
use super::problem::{ApiError, Kind};
use super::request::{Params, Pieces};
use super::types::{KeyRotated, Problem, TenantCreated, TenantList, TenantNow, TenantRequest, TenantView};
use crate::clock::rfc3339;
use crate::names::Name;
use crate::node::Node;
use crate::tenant::{BadStoreId, QuotaPatch, StoreId, Tenant};

const TAG: &str = "tenants";

fn view(node: &Node, tenant: &Tenant) -> TenantView {
    TenantView {
        name: tenant.name.to_string(),
        store: tenant.store.to_string(),
        created_at: rfc3339(tenant.created_ms),
        quota: tenant.quota().as_ref().clone(),
        usage: tenant.ledger.usage(),
        now: TenantNow {
            functions: node.registry.list(tenant.id).len(),
            stored_bytes: tenant.storage.used(),
            memory: tenant.memory.used(),
        },
    }
}

/// What the calling tenant may use and has used.
#[utoipa::path(get, path = "/v1/usage", tag = TAG, operation_id = "usage", responses((status = 200, body = TenantView)))]
pub async fn usage(AsTenant(tenant): AsTenant, State(node): State<Arc<Node>>) -> Json<TenantView> {
    Json(view(&node, &tenant))
}

/// Create a tenant. The answer holds its key, this once.
#[utoipa::path(
    post, path = "/v1/tenants", tag = TAG, operation_id = "create_tenant", request_body = TenantRequest,
    responses(
        (status = 201, body = TenantCreated),
        (status = 409, description = "The name is taken", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn create(
    _: AsOperator,
    State(node): State<Arc<Node>>,
    pieces: Pieces,
) -> Result<(StatusCode, Json<TenantCreated>), ApiError> {
    let wish: TenantRequest = pieces.json().await?;
    let name: Name = wish.name.parse()?;
    let mut quota = node.settings.quota.clone();
    quota.apply(&wish.quota);
    let store = wish.store.as_deref().map(str::parse::<StoreId>).transpose()?;
    if store.is_some() && !node.params.is_remote() {
        let alone = "`store` is for nodes that share a Redis (`params_store`); this one has its parameters to itself";
        return Err(ApiError::new(Kind::InvalidRequest, alone));
    }
    let (tenant, key) = node.tenants.create(name, quota, store).await?;
    let created = TenantCreated { tenant: view(&node, &tenant), key: key.reveal().to_string() };
    Ok((StatusCode::CREATED, Json(created)))
}

/// List tenants by name.
#[utoipa::path(
    get, path = "/v1/tenants", tag = TAG, operation_id = "list_tenants", params(Page),
    responses((status = 200, body = TenantList))
)]
pub async fn list(_: AsOperator, State(node): State<Arc<Node>>, Params(page): Params<Page>) -> Json<TenantList> {
    let (tenants, next) = page.of(node.tenants.list(), |tenant| &tenant.name);
    Json(TenantList { tenants: tenants.iter().map(|tenant| view(&node, tenant)).collect(), next })
}

/// Look at a tenant: its quota and its usage.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}", tag = TAG, operation_id = "show_tenant", params(("tenant" = String, Path)),
    responses((status = 200, body = TenantView), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    _: AsOperator,
    State(node): State<Arc<Node>>,
    Path(tenant): Path<String>,
) -> Result<Json<TenantView>, ApiError> {
    Ok(Json(view(&node, &*node.tenants.get(&tenant)?)))
}

/// Change some of a tenant's limits; they hold at once.
#[utoipa::path(
    patch, path = "/v1/tenants/{tenant}/quota", tag = TAG, operation_id = "set_quota", params(("tenant" = String, Path)),
    request_body = QuotaPatch,
    responses((status = 200, body = TenantView), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn set_quota(
    _: AsOperator,
    State(node): State<Arc<Node>>,
    Path(tenant): Path<String>,
    pieces: Pieces,
) -> Result<Json<TenantView>, ApiError> {
    let patch: QuotaPatch = pieces.json().await?;
    Ok(Json(view(&node, &*node.tenants.set_quota(&tenant, &patch).await?)))
}

/// Give a tenant a new key. The old one stops working at once.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/rotate-key", tag = TAG, operation_id = "rotate_key",
    params(("tenant" = String, Path)),
    responses((status = 200, body = KeyRotated), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn rotate_key(
    _: AsOperator,
    State(node): State<Arc<Node>>,
    Path(tenant): Path<String>,
) -> Result<Json<KeyRotated>, ApiError> {
    let key = node.tenants.rotate_key(&tenant).await?;
    Ok(Json(KeyRotated { key: key.reveal().to_string() }))
}

/// Delete a tenant with everything it has. Its requests, calls and jobs end at once.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}", tag = TAG, operation_id = "delete_tenant", params(("tenant" = String, Path)),
    responses((status = 204), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn delete(
    _: AsOperator,
    State(node): State<Arc<Node>>,
    Path(tenant): Path<String>,
) -> Result<StatusCode, ApiError> {
    node.delete_tenant(&tenant).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<BadStoreId> for ApiError {
    fn from(error: BadStoreId) -> Self {
        Self::new(Kind::InvalidRequest, error.to_string())
    }
}
