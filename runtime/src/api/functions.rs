//! Functions: deploy, list, look at, roll back, delete.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::charged::{ITEM, charged};
use super::problem::ApiError;
use super::request::{Params, Pieces, cursor};
use super::types::{
    DeployOutcome, DeployView, FunctionList, FunctionView, Problem, RollbackRequest, VersionList, VersionView,
};
use crate::clock::rfc3339;
use crate::names::Name;
use crate::node::Node;
use crate::registry::{Deployed, Function};

const TAG: &str = "functions";

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// How many at most; 100 unless said otherwise, 1000 at most.
    #[param(value_type = Option<usize>)]
    limit: Option<NonZeroUsize>,
    /// Begin after this name.
    #[serde(default, deserialize_with = "cursor")]
    after: Option<String>,
}

impl Page {
    pub fn new(limit: Option<NonZeroUsize>, after: Option<String>) -> Self {
        Self { limit, after }
    }

    /// The part of a sorted list that was asked for, and the cursor for the rest.
    pub fn of<T>(&self, items: Vec<T>, name: impl Fn(&T) -> &Name) -> (Vec<T>, Option<String>) {
        let limit = self.limit.map_or(100, |limit| limit.get().min(1_000));
        let after = self.after.as_deref();
        let mut rest = items.into_iter().filter(|item| after.is_none_or(|after| name(item).as_str() > after));
        let page: Vec<T> = rest.by_ref().take(limit).collect();
        let next = rest.next().and(page.last()).map(|last| name(last).to_string());
        (page, next)
    }
}

fn view(function: &Function) -> FunctionView {
    let active = function.versions.iter().find(|version| version.digest == function.active);
    FunctionView {
        name: function.name.to_string(),
        version: function.active.to_string(),
        created_at: rfc3339(function.created_ms),
        updated_at: rfc3339(function.updated_ms),
        versions: function.versions.len(),
        stored_bytes: function.stored_bytes(),
        size: active.map_or(0, |version| version.size),
        imports: active.map(|version| version.imports.clone()).unwrap_or_default(),
    }
}

/// Deploy a component: its bytes are a version, and the function runs it from now on.
#[utoipa::path(
    put, path = "/v1/functions/{name}", tag = TAG, operation_id = "deploy",
    params(("name" = String, Path, description = "The function's name")),
    request_body(content = Vec<u8>, content_type = "application/wasm"),
    responses(
        (status = 201, description = "The function is new", body = DeployView),
        (status = 200, description = "It runs another version, or ran this one already", body = DeployView),
    )
)]
pub async fn deploy(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    mut pieces: Pieces,
) -> Result<(StatusCode, Json<DeployView>), ApiError> {
    let name: Name = name.parse()?;
    let (mut upload, _permit) = match node.begin_upload(&tenant).await {
        Ok(begun) => begun,
        Err(error) => return Err(pieces.refuse(error).await),
    };
    if let Err(error) = upload.expect(pieces.announced().unwrap_or(0)) {
        return Err(pieces.refuse(error).await);
    }
    while let Some(piece) = pieces.next().await? {
        if let Err(error) = upload.write(&piece).await {
            return Err(pieces.refuse(error).await);
        }
    }
    let (function, deployed) = node.deploy(tenant, name, upload).await?;
    let (status, outcome) = match deployed {
        Deployed::Created => (StatusCode::CREATED, DeployOutcome::Created),
        Deployed::Updated => (StatusCode::OK, DeployOutcome::Updated),
        Deployed::Unchanged => (StatusCode::OK, DeployOutcome::Unchanged),
    };
    Ok((status, Json(DeployView { outcome, function: view(&function) })))
}

/// List functions by name.
#[utoipa::path(
    get, path = "/v1/functions", tag = TAG, operation_id = "list_functions", params(Page),
    responses((status = 200, body = FunctionList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(page): Params<Page>,
) -> Result<Response, ApiError> {
    let (functions, next) = page.of(node.registry.list(tenant.id), |function| &function.name);
    charged(&node, &tenant, functions.len() * ITEM, move || FunctionList {
        functions: functions.iter().map(|function| view(function)).collect(),
        next,
    })
    .await
}

/// Look at a function.
#[utoipa::path(
    get, path = "/v1/functions/{name}", tag = TAG, operation_id = "show_function",
    params(("name" = String, Path)),
    responses((status = 200, body = FunctionView), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Json<FunctionView>, ApiError> {
    Ok(Json(view(&*node.registry.get(tenant.id, &name)?)))
}

/// Delete a function with all its versions. Invocations that run already finish.
#[utoipa::path(
    delete, path = "/v1/functions/{name}", tag = TAG, operation_id = "delete_function",
    params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    node.delete_function(&tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List a function's versions, oldest first.
#[utoipa::path(
    get, path = "/v1/functions/{name}/versions", tag = TAG, operation_id = "list_versions",
    params(("name" = String, Path)),
    responses((status = 200, body = VersionList), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn versions(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let function = node.registry.get(tenant.id, &name)?;
    let view = |function: &Function| {
        let versions = function.versions.iter().map(|version| VersionView {
            version: version.digest.to_string(),
            size: version.size,
            native_bytes: version.native,
            deployed_at: rfc3339(version.deployed_ms),
            imports: version.imports.clone(),
            active: version.digest == function.active,
        });
        VersionList { versions: versions.collect() }
    };
    charged(&node, &tenant, function.versions.len() * ITEM, move || view(&function)).await
}

/// Delete a version that is not running.
#[utoipa::path(
    delete, path = "/v1/functions/{name}/versions/{version}", tag = TAG, operation_id = "delete_version",
    params(("name" = String, Path), ("version" = String, Path, description = "The beginning of its digest")),
    responses(
        (status = 200, body = FunctionView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is running", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete_version(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path((name, version)): Path<(String, String)>,
) -> Result<Json<FunctionView>, ApiError> {
    Ok(Json(view(&*node.registry.delete_version(&tenant, &name, &version).await?)))
}

/// Go back to the version that ran before, or to a given one. It takes effect at once.
#[utoipa::path(
    post, path = "/v1/functions/{name}/rollback", tag = TAG, operation_id = "rollback",
    params(("name" = String, Path)), request_body = RollbackRequest,
    responses(
        (status = 200, body = FunctionView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is no earlier version", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn rollback(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<Json<FunctionView>, ApiError> {
    let wish: RollbackRequest = pieces.json().await?;
    Ok(Json(view(&*node.registry.rollback(tenant.id, &name, wish.to.as_deref()).await?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another_without_a_gap() {
        let names: Vec<Name> = ["a", "b", "c", "d", "e"].iter().map(|name| name.parse().unwrap()).collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = Page { limit: NonZeroUsize::new(2), after: after.take() };
            let (items, next) = page.of(names.clone(), |name| name);
            seen.extend(items);
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, names);
    }
}
