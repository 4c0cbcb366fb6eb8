//! Uploads: large files, part by part. Whoever is interrupted begins again and is told what is missing.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use super::auth::AsTenant;
use super::changes::to_the_end;
use super::problem::ApiError;
use super::request::Pieces;
use super::types::{Problem, UploadRequest, UploadView};
use crate::catalog::{PART_BYTES, Upload};
use crate::digest::Digest;
use crate::node::Node;
use crate::tenant::Charge;

const TAG: &str = "uploads";

/// The digest of a part, for whoever wants it checked on the way.
const PART_DIGEST: &str = "weft-digest";

fn view(upload: &Upload) -> UploadView {
    UploadView {
        digest: upload.digest.to_string(),
        size: upload.size,
        part_bytes: PART_BYTES,
        parts: upload.parts.len(),
        missing: upload.missing(),
    }
}

/// Begin an upload, or find it as far as it has come.
#[utoipa::path(
    post, path = "/v1/uploads", tag = TAG, operation_id = "begin_upload", request_body = UploadRequest,
    responses((status = 200, body = UploadView))
)]
pub async fn begin(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    pieces: Pieces,
) -> Result<Json<UploadView>, ApiError> {
    let wish: UploadRequest = pieces.json().await?;
    let digest: Digest = wish.digest.parse()?;
    let owner = tenant.clone();
    let begin = async move { node.catalog.begin_upload(&owner, digest, wish.size).await };
    Ok(Json(view(&*to_the_end(&tenant, begin).await?)))
}

/// Look how far an upload has come.
#[utoipa::path(
    get, path = "/v1/uploads/{digest}", tag = TAG, operation_id = "show_upload", params(("digest" = String, Path)),
    responses((status = 200, body = UploadView), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(digest): Path<String>,
) -> Result<Json<UploadView>, ApiError> {
    Ok(Json(view(&*node.catalog.upload(tenant.id, &digest.parse()?)?)))
}

/// Send a part: all have `part_bytes` bytes but for the last. With the header `weft-digest`, it is checked against that.
#[utoipa::path(
    put, path = "/v1/uploads/{digest}/parts/{index}", tag = TAG, operation_id = "send_part",
    params(("digest" = String, Path), ("index" = usize, Path, description = "The first is 0")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = UploadView), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn part(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path((digest, index)): Path<(String, usize)>,
    headers: HeaderMap,
    pieces: Pieces,
) -> Result<Json<UploadView>, ApiError> {
    let digest: Digest = digest.parse()?;
    if let Err(error) = node.catalog.upload(tenant.id, &digest) {
        return Err(pieces.refuse(error).await);
    }
    let mut charge = Charge::none(tenant.memory.clone());
    let bytes = pieces.read(PART_BYTES, "part_bytes", &mut charge).await?;
    let claimed = headers.get(PART_DIGEST).map(|claimed| claimed.to_str().unwrap_or_default().parse()).transpose()?;
    let owner = tenant.clone();
    let add = async move {
        // The bytes are in memory until they are stored.
        let _charge = charge;
        node.catalog.add_part(&owner, &digest, index, bytes.into(), claimed).await
    };
    Ok(Json(view(&*to_the_end(&tenant, add).await?)))
}

/// Give an upload up. Its bytes are no longer charged.
#[utoipa::path(
    delete, path = "/v1/uploads/{digest}", tag = TAG, operation_id = "delete_upload", params(("digest" = String, Path)),
    responses((status = 204), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(digest): Path<String>,
) -> Result<StatusCode, ApiError> {
    let digest = digest.parse()?;
    let owner = tenant.clone();
    to_the_end(&tenant, async move { node.catalog.delete_upload(&owner, &digest).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
