//! Standing orders: which job a data set starts whenever it has grown.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::auth::AsTenant;
use super::changes::to_the_end;
use super::charged::{ITEM, charged};
use super::functions::Page;
use super::problem::ApiError;
use super::request::{Params, Pieces};
use super::types::{Problem, StandingOrderList, StandingOrderView};
use crate::clock::rfc3339;
use crate::job::{JobSpec, StandingOrder};
use crate::names::Name;
use crate::node::Node;

const TAG: &str = "datasets";

fn view(order: &StandingOrder) -> StandingOrderView {
    StandingOrderView {
        dataset: order.dataset.to_string(),
        created_at: rfc3339(order.created_ms),
        spec: order.spec.clone(),
        seen: order.seen.to_string(),
        job: order.job.as_ref().map(ToString::to_string),
        started: order.started,
        problem: order.problem.clone(),
    }
}

/// Have a data set start a job whenever it has grown: one at a time, for the latest version.
#[utoipa::path(
    put, path = "/v1/datasets/{name}/on-append", tag = TAG, operation_id = "give_order",
    params(("name" = String, Path)), request_body = JobSpec,
    responses(
        (status = 200, description = "It replaces the order before", body = StandingOrderView),
        (status = 201, description = "The order is new", body = StandingOrderView),
        (status = 404, description = "There is no such data set or function", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Such a job cannot be run: `word` says which word is wrong", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn give(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<(StatusCode, Json<StandingOrderView>), ApiError> {
    // An unknown name is refused before its body is kept.
    if let Err(error) = node.catalog.dataset(tenant.id, &name) {
        return Err(pieces.refuse(error).await);
    }
    let spec: JobSpec = pieces.json().await?;
    let (giving, owner, dataset) = (node.jobs.clone(), tenant.clone(), name.parse::<Name>()?);
    let given = async move { giving.give_order(&owner, dataset, spec).await };
    let (order, is_new) = to_the_end(&tenant, given).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(view(&order))))
}

/// Look at the standing order of a data set, and at what it has started.
#[utoipa::path(
    get, path = "/v1/datasets/{name}/on-append", tag = TAG, operation_id = "show_order", params(("name" = String, Path)),
    responses(
        (status = 200, body = StandingOrderView),
        (status = 404, description = "There is no such order", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Json<StandingOrderView>, ApiError> {
    Ok(Json(view(&*node.jobs.standing.get(tenant.id, &name)?)))
}

/// Take a standing order back. The jobs that it has started stay.
#[utoipa::path(
    delete, path = "/v1/datasets/{name}/on-append", tag = TAG, operation_id = "take_order_back",
    params(("name" = String, Path)),
    responses(
        (status = 204),
        (status = 404, description = "There is no such order", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn take_back(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let owner = tenant.clone();
    to_the_end(&tenant, async move { node.jobs.take_order_back(&owner, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List standing orders by data set.
#[utoipa::path(
    get, path = "/v1/on-append", tag = TAG, operation_id = "list_orders", params(Page),
    responses((status = 200, body = StandingOrderList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(page): Params<Page>,
) -> Result<Response, ApiError> {
    let (orders, next) = page.of(node.jobs.standing.list(tenant.id), |order| &order.dataset);
    charged(&node, &tenant, orders.len() * ITEM, move || StandingOrderList {
        orders: orders.iter().map(|order| view(order)).collect(),
        next,
    })
    .await
}
