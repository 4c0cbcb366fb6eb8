//! What things cost on this node.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use weft_core::plan::prices::PriceTable;

use super::auth::AsTenant;
use crate::node::Node;

const TAG: &str = "prices";

/// What this node charges: by the second of a core, a device and a GiB, by the start, and by the GiB that is moved.
#[utoipa::path(get, path = "/v1/prices", tag = TAG, operation_id = "prices", responses((status = 200, body = PriceTable)))]
pub async fn show(_: AsTenant, State(node): State<Arc<Node>>) -> Json<PriceTable> {
    Json(PriceTable::clone(&node.prices))
}
