//! The HTTP API. The only place that names an HTTP status.
//!
//! Handlers extract, call the [`Node`], and turn the answer into JSON. Every route is listed in [`router`] and described
//! in [`description`]; every error becomes a problem in [`problem`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{ALLOW, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, Request, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::node::Node;

mod admission;
mod auth;
mod changes;
mod charged;
mod connection;
mod datasets;
mod description;
mod devices;
mod ending;
mod follow;
mod functions;
mod invoke;
mod job_events;
mod jobs;
mod logs;
mod models;
mod operations;
mod params;
mod prices;
pub mod problem;
mod request;
mod standing;
mod tenants;
mod tune_events;
mod tunes;
pub mod types;
mod uploads;

pub use connection::{Connection, RequestOn};
use problem::{ApiError, Kind};

/// What answers requests.
#[derive(Clone)]
pub struct Api {
    node: Arc<Node>,
    routes: TowerToHyperService<Router>,
}

impl Api {
    pub fn new(node: Arc<Node>) -> Self {
        Self { routes: TowerToHyperService::new(router(node.clone())), node }
    }

    /// Admits a request, counts it while it is in flight, counts problems, and turns what axum itself refuses (a path that
    /// is not UTF-8) into one. It is around the router and not a layer of it: a layer would box each request twice more.
    pub async fn answer(&self, request: Request<Incoming>) -> Response {
        let _active = self.node.begin_request();
        let mut response = match admission::admit(&request, self.node.is_developers()) {
            Ok(()) => ending::run(request, |request| self.route(request)).await,
            Err(refused) => refused.into_response(),
        };
        if response.status().is_client_error() && response.extensions().get::<Kind>().is_none() {
            response = ApiError::new(Kind::InvalidRequest, "the path is not what this route takes").into_response();
        }
        if let Some(kind) = response.extensions().get::<Kind>() {
            self.node.metrics.count_problem(kind.slug());
        }
        // What functions answer is of their callers' making, too: no browser is to guess that it is a page.
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        match invoke::target(request.method(), request.uri().path()).map(str::to_owned) {
            Some(name) => Ok(Box::pin(invoke::direct(self.node.clone(), name, request.map(Body::new))).await),
            None => self.routes.call(request).await,
        }
    }
}

/// Every route.
fn router(node: Arc<Node>) -> Router {
    let description = Bytes::from(description::openapi().to_string());
    let description = move || async move { ([("content-type", "application/json")], description) };
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
        .route("/v1/datasets/{name}/manifest", get(datasets::manifest))
        .route("/v1/datasets/{name}/blocks/{digest}", get(datasets::block))
        .route("/v1/datasets/{name}/on-append", put(standing::give).get(standing::show).delete(standing::take_back))
        .route("/v1/on-append", get(standing::list))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{name}", put(models::create).get(models::show).delete(models::delete))
        .route("/v1/models/{name}/file", get(models::file))
        .route("/v1/jobs", post(jobs::submit).get(jobs::list))
        .route("/v1/jobs/{name}", get(jobs::show).delete(jobs::delete).post(jobs::posted))
        .route("/v1/jobs/{name}/history", get(jobs::history))
        .route("/v1/jobs/{name}/plan", get(jobs::plan))
        .route("/v1/jobs/{name}/events", get(job_events::events))
        .route("/v1/jobs/{name}/logs", get(logs::job_logs))
        .route("/v1/jobs/{name}/stop", post(jobs::stop))
        .route("/v1/jobs/{name}/resume", post(jobs::resume))
        .route("/v1/jobs/{name}/scale", post(jobs::scale))
        .route("/v1/jobs/{name}/workers/{worker}/kill", post(jobs::kill_worker))
        .route("/v1/jobs/{name}/infer", post(jobs::infer))
        .route("/v1/functions/{name}/description", get(tunes::describe))
        .route("/v1/tunes", post(tunes::submit).get(tunes::list))
        .route("/v1/tunes/{name}", get(tunes::show).delete(tunes::delete))
        .route("/v1/tunes/{name}/trials", get(tunes::trials))
        .route("/v1/tunes/{name}/events", get(tune_events::events))
        .route("/v1/tunes/{name}/stop", post(tunes::stop))
        .route("/v1/tunes/{name}/resume", post(tunes::resume))
        .route("/v1/tunes/{name}/ask", post(tunes::ask))
        .route("/v1/tunes/{name}/tell", post(tunes::tell))
        .route("/v1/params", get(params::list).delete(params::delete_all))
        .route("/v1/params/{*name}", get(params::get).put(params::set).delete(params::delete))
        .route("/v1/usage", get(tenants::usage))
        .route("/v1/prices", get(prices::show))
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
        .with_state(node)
}

async fn unknown_route(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::not_found(&format!("there is no route `{path}`; `/openapi.json` lists them"))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let detail = format!("this route does not take {method}; `/openapi.json` says what it takes");
    let mut response = ApiError::new(Kind::MethodNotAllowed, detail).into_response();
    // The router would add POST, which only `prune` takes: see `jobs::posted`.
    let job = uri.path().strip_prefix("/v1/jobs/").filter(|job| !job.contains('/') && *job != "prune");
    if job.is_some() {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD,DELETE"));
    }
    response
}
