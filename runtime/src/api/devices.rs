//! What the node computes on, and who has it.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use weft_gpu::device::DeviceInfo;
use weft_gpu::pool::{DeviceId, DeviceLedger, PoolError};
use weft_gpu::share::Owner;

use super::auth::AsOperator;
use super::problem::{ApiError, Kind};
use super::types::{DeviceList, DeviceTenant, DeviceView, Problem};
use crate::node::Node;

const TAG: &str = "operations";

/// The node's devices at this moment.
#[utoipa::path(
    get, path = "/v1/devices", tag = TAG, operation_id = "list_devices", responses((status = 200, body = DeviceList))
)]
pub async fn list(_: AsOperator, State(node): State<Arc<Node>>) -> Result<Json<DeviceList>, ApiError> {
    let pool = node.devices.open().await?;
    let ledger = pool.ledger();
    let names: HashMap<Owner, String> =
        node.tenants.list().iter().map(|tenant| (tenant.owner.clone(), tenant.name.to_string())).collect();
    let view = |((id, info), held): ((DeviceId, &DeviceInfo), &DeviceLedger)| {
        let tenants = held.tenants.iter().map(|(owner, account)| DeviceTenant {
            // What a deleted tenant had is given back in a moment. Its id tells it from a later one of its name.
            tenant: names.get(owner).cloned().unwrap_or_else(|| format!("deleted tenant {owner}")),
            leases: account.leases,
            reserved: account.reserved as u64,
            used: account.used as u64,
            device_seconds: account.time.as_secs_f64(),
        });
        DeviceView {
            device: id.to_string(),
            name: info.name.clone(),
            kind: info.kind.to_string(),
            memory: info.memory as u64,
            reserved: held.reserved as u64,
            tenants: tenants.collect(),
        }
    };
    Ok(Json(DeviceList { devices: pool.devices().zip(&ledger.devices).map(view).collect() }))
}

/// Give a GPU up and open it anew. Whatever is held on it is lost, as when its driver resets: calls that compute on it
/// fail, workers of jobs start again elsewhere or on the rebuilt device and their jobs lose nothing but time.
#[utoipa::path(
    post, path = "/v1/devices/{device}/reset", tag = TAG, operation_id = "reset_device",
    params(("device" = String, Path, description = "As `GET /v1/devices` names it")),
    responses(
        (status = 204),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is no GPU", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn reset(
    _: AsOperator,
    State(node): State<Arc<Node>>,
    Path(device): Path<String>,
) -> Result<StatusCode, ApiError> {
    let Ok(id) = device.parse::<DeviceId>() else {
        return Err(ApiError::not_found(&format!("there is no device `{}`", device.escape_debug())));
    };
    let pool = node.devices.open().await?.clone();
    // Drivers take their time: not on a thread that others need.
    let reset = tokio::task::spawn_blocking(move || pool.reset(id)).await.map_err(anyhow::Error::from)?;
    match reset {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error @ PoolError::NoSuchDevice { .. }) => Err(ApiError::not_found(&error.to_string())),
        Err(error) => Err(ApiError::new(Kind::Conflict, error.to_string())),
    }
}
