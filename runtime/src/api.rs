//! The HTTP API. The only place that names an HTTP status.
//!
//! Handlers extract, call the [`Node`], and turn the answer into JSON. Every route is listed in [`router`] and described
//! in [`Description`]; every error becomes a problem in [`problem`].

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder, Responses};

use crate::node::Node;

mod auth;
mod datasets;
mod devices;
mod follow;
mod functions;
mod invoke;
mod job_events;
mod jobs;
mod logs;
mod models;
mod operations;
mod params;
pub mod problem;
mod request;
mod tenants;
pub mod types;
mod uploads;

use problem::{ApiError, Kind};

/// What `/openapi.json` says.
#[derive(OpenApi)]
#[openapi(
    info(title = "Weft", description = "Functions, tenants and training on one node"),
    paths(
        functions::deploy, functions::list, functions::show, functions::delete, functions::versions,
        functions::delete_version, functions::rollback, invoke::invoke, logs::logs,
        uploads::begin, uploads::show, uploads::part, uploads::delete,
        datasets::create, datasets::append, datasets::list, datasets::show, datasets::delete,
        models::create, models::list, models::show, models::file, models::delete,
        jobs::submit, jobs::list, jobs::prune, jobs::show, jobs::delete, jobs::history, jobs::stop, jobs::resume,
        jobs::kill_worker, jobs::infer, job_events::events, logs::job_logs,
        params::list, params::get, params::set, params::delete, params::delete_all,
        tenants::usage, tenants::create, tenants::list, tenants::show, tenants::set_quota, tenants::rotate_key,
        tenants::delete,
        operations::livez, operations::readyz, operations::metrics, operations::status, operations::backup,
        devices::list, devices::reset,
    ),
    security(("key" = []))
)]
struct Description;

/// The description of the API, OpenAPI 3.1.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut description = Description::openapi();
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    description.components.get_or_insert_default().add_security_scheme("key", bearer);
    for item in description.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            declare_problems(&mut operation.responses);
        }
    }
    description
}

/// Any request may be refused, and the node may fail: every operation says so, in the same words.
fn declare_problems(responses: &mut Responses) {
    for (class, meaning) in [("4XX", "The request was refused"), ("5XX", "The node or the function failed")] {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new().description(meaning).content("application/problem+json", problem);
        responses.responses.entry(class.to_owned()).or_insert_with(|| response.build().into());
    }
}

/// Every route.
pub fn router(node: Arc<Node>) -> Router {
    let description = openapi().to_json().unwrap_or_default();
    let description = move || async move { ([("content-type", "application/json")], description.clone()) };
    Router::new()
        .route("/v1/functions", get(functions::list))
        .route("/v1/functions/{name}", put(functions::deploy).get(functions::show).delete(functions::delete))
        .route("/v1/functions/{name}/versions", get(functions::versions))
        .route("/v1/functions/{name}/versions/{version}", delete(functions::delete_version))
        .route("/v1/functions/{name}/rollback", post(functions::rollback))
        .route("/v1/functions/{name}/invoke", post(invoke::invoke))
        .route("/v1/functions/{name}/logs", get(logs::logs))
        .route("/v1/uploads", post(uploads::begin))
        .route("/v1/uploads/{digest}", get(uploads::show).delete(uploads::delete))
        .route("/v1/uploads/{digest}/parts/{index}", put(uploads::part))
        .route("/v1/datasets", get(datasets::list))
        .route("/v1/datasets/{name}", put(datasets::create).get(datasets::show).delete(datasets::delete))
        .route("/v1/datasets/{name}/append", post(datasets::append))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{name}", put(models::create).get(models::show).delete(models::delete))
        .route("/v1/models/{name}/file", get(models::file))
        .route("/v1/jobs", post(jobs::submit).get(jobs::list))
        .route("/v1/jobs/{name}", get(jobs::show).delete(jobs::delete).post(jobs::posted))
        .route("/v1/jobs/{name}/history", get(jobs::history))
        .route("/v1/jobs/{name}/events", get(job_events::events))
        .route("/v1/jobs/{name}/logs", get(logs::job_logs))
        .route("/v1/jobs/{name}/stop", post(jobs::stop))
        .route("/v1/jobs/{name}/resume", post(jobs::resume))
        .route("/v1/jobs/{name}/workers/{worker}/kill", post(jobs::kill_worker))
        .route("/v1/jobs/{name}/infer", post(jobs::infer))
        .route("/v1/params", get(params::list).delete(params::delete_all))
        .route("/v1/params/{*name}", get(params::get).put(params::set).delete(params::delete))
        .route("/v1/usage", get(tenants::usage))
        .route("/v1/tenants", post(tenants::create).get(tenants::list))
        .route("/v1/tenants/{tenant}", get(tenants::show).delete(tenants::delete))
        .route("/v1/tenants/{tenant}/quota", patch(tenants::set_quota))
        .route("/v1/tenants/{tenant}/rotate-key", post(tenants::rotate_key))
        .route("/v1/node", get(operations::status))
        .route("/v1/devices", get(devices::list))
        .route("/v1/devices/{device}/reset", post(devices::reset))
        .route("/v1/backup", get(operations::backup))
        .route("/metrics", get(operations::metrics))
        .route("/livez", get(operations::livez))
        .route("/readyz", get(operations::readyz))
        .route("/openapi.json", get(description))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(node.clone(), observe))
        .with_state(node)
}

async fn unknown_route(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::not_found(&format!("there is no route `{path}`; `/openapi.json` lists them"))
}

async fn wrong_method(method: Method) -> ApiError {
    ApiError::new(
        Kind::MethodNotAllowed,
        format!("this route does not take {method}; `/openapi.json` says what it takes"),
    )
}

/// Counts requests in flight and problems, and turns what axum itself refuses (a path that is not UTF-8) into one.
async fn observe(State(node): State<Arc<Node>>, request: axum::extract::Request, next: Next) -> Response {
    let _active = node.begin_request();
    let response = next.run(request).await;
    let kind = match response.extensions().get::<Kind>() {
        Some(kind) => *kind,
        None if response.status().is_client_error() => {
            let refused = ApiError::new(Kind::InvalidRequest, "the path is not what this route takes");
            node.metrics.count_problem(Kind::InvalidRequest.slug());
            return refused.into_response();
        }
        None => return response,
    };
    node.metrics.count_problem(kind.slug());
    response
}
