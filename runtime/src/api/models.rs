//! Models: keep, list, look at, fetch, delete.

use std::io::{self, Read, Seek, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::changes::to_the_end;
use super::charged::{ITEM, charged};
use super::functions::Page;
use super::problem::{ApiError, Kind};
use super::request::{Params, Pieces, cursor};
use super::types::{ModelDetail, ModelList, ModelRequest, ModelView, Problem, TensorView};
use crate::catalog::{BlobFile, CatalogError, StoredModel};
use crate::clock::rfc3339;
use crate::model::{Model, TensorInfo, export_npz};
use crate::node::Node;
use crate::tenant::{Charge, ChargedBytes};

const TAG: &str = "models";
const PIECE: usize = 256 << 10;

/// What a model is wanted as.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct As {
    /// `safetensors`, as it is kept, or `npz`.
    format: Option<String>,
}

fn view(model: &StoredModel) -> ModelView {
    ModelView {
        name: model.name.to_string(),
        digest: model.digest.to_string(),
        size: model.size,
        tensors: model.tensors,
        parameters: model.parameters,
        created_at: rfc3339(model.created_ms),
    }
}

/// Make an uploaded safetensors file a model.
#[utoipa::path(
    put, path = "/v1/models/{name}", tag = TAG, operation_id = "create_model", params(("name" = String, Path)),
    request_body = ModelRequest,
    responses((status = 201, body = ModelView), (status = 422, description = "The file is no model", body = Problem, content_type = "application/problem+json"))
)]
pub async fn create(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<(StatusCode, Json<ModelView>), ApiError> {
    let wish: ModelRequest = pieces.json().await?;
    let model = node.make_model(tenant, name.parse()?, wish.upload.parse()?).await?;
    Ok((StatusCode::CREATED, Json(view(&model))))
}

/// List models by name.
#[utoipa::path(
    get, path = "/v1/models", tag = TAG, operation_id = "list_models", params(Page),
    responses((status = 200, body = ModelList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(page): Params<Page>,
) -> Result<Response, ApiError> {
    let (models, next) = page.of(node.catalog.models(tenant.id), |model| &model.name);
    charged(&node, &tenant, models.len() * ITEM, move || ModelList {
        models: models.iter().map(|model| view(model)).collect(),
        next,
    })
    .await
}

/// Which tensors.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TensorQuery {
    /// How many at most; 1000 unless said otherwise, 10000 at most.
    #[param(value_type = Option<usize>)]
    limit: Option<NonZeroUsize>,
    /// Begin after the tensor of this name.
    #[serde(default, deserialize_with = "cursor")]
    after: Option<String>,
}

impl TensorQuery {
    /// The tensors that were asked for, and the cursor for the rest.
    fn of<R: Read + Seek>(&self, model: &Model<R>) -> Result<(Vec<TensorView>, Option<String>), CatalogError> {
        let limit = self.limit.map_or(1_000, |limit| limit.get().min(10_000));
        let start = match &self.after {
            None => 0,
            Some(after) => {
                let place = model.tensors().position(|tensor| tensor.name == *after);
                1 + place.ok_or_else(|| CatalogError::Invalid("`after` names no tensor of this model".to_owned()))?
            }
        };
        let mut rest = model.tensors().skip(start);
        let page: Vec<TensorView> = rest.by_ref().take(limit).map(tensor_view).collect();
        let next = rest.next().and(page.last()).map(|last| last.name.clone());
        Ok((page, next))
    }
}

fn tensor_view(tensor: &TensorInfo) -> TensorView {
    TensorView {
        name: tensor.name.clone(),
        dtype: format!("{:?}", tensor.dtype).to_lowercase(),
        shape: tensor.shape.clone(),
    }
}

/// Look at a model: where it comes from, and its tensors in the order of the file.
#[utoipa::path(
    get, path = "/v1/models/{name}", tag = TAG, operation_id = "show_model",
    params(("name" = String, Path), TensorQuery),
    responses((status = 200, body = ModelDetail), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(query): Params<TensorQuery>,
) -> Result<Response, ApiError> {
    let model = node.catalog.model(tenant.id, &name)?;
    let place = node.places.opening(&tenant).await?;
    let shown = view(&model);
    // Written where the file is read: a head may hold megabytes of metadata.
    let describe = move |model: &Model<BlobFile>| {
        let (tensors, next) = query.of(model)?;
        let detail = ModelDetail { model: shown, metadata: model.meta.to_strings(), tensors, next };
        serde_json::to_vec(&detail).map_err(|error| CatalogError::io("describing a model", error.into()))
    };
    let (json, charge) = node.catalog.look_at_model(&tenant, &model, place, describe).await?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, Bytes::from_owner(ChargedBytes::new(json, charge))).into_response())
}

/// Fetch a model's file.
#[utoipa::path(
    get, path = "/v1/models/{name}/file", tag = TAG, operation_id = "fetch_model", params(("name" = String, Path), As),
    responses((status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"))
)]
pub async fn file(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(wanted): Params<As>,
) -> Result<Response, ApiError> {
    let model = node.catalog.model(tenant.id, &name)?;
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    match wanted.format.as_deref() {
        None | Some("safetensors") => {
            let blob = node.catalog.read_model(&model).await?;
            // A reader may take its time, and some of the file is in memory meanwhile.
            let mut charge = Charge::none(tenant.memory.clone());
            charge.grow(blob.held() + PIECE as u64)?;
            let until = Instant::now() + node.settings.answer_timeout.0;
            let length = [(header::CONTENT_LENGTH, model.size.to_string())];
            let pieces = stream::unfold(Some((blob, charge)), move |reading| async move {
                let (mut blob, charge) = reading?;
                if Instant::now() >= until {
                    return Some((Err(too_slow()), None));
                }
                let mut piece = vec![0; PIECE];
                match blob.read(&mut piece).await {
                    Ok(0) => None,
                    Ok(read) => {
                        piece.truncate(read);
                        Some((Ok(Bytes::from(piece)), Some((blob, charge))))
                    }
                    Err(error) => Some((Err(error), None)),
                }
            });
            Ok((kind, length, Body::from_stream(pieces)).into_response())
        }
        Some("npz") => {
            let place = node.places.export(&tenant).await?;
            let (pieces, received) = mpsc::channel(4);
            // The reader takes the end of the channel for the end of the file, so the channel stays open until it has been
            // noted whether the file is whole.
            let open = pieces.clone();
            // Opened first, so that a damaged file is an answer and not a torn one.
            let opening = node.places.opening(&tenant).await?;
            let mut model = node.catalog.open_model(&tenant, &model, opening).await?;
            let whole = Arc::new(AtomicBool::new(false));
            let is_whole = whole.clone();
            let sender =
                Sender { pieces, runtime: Handle::current(), until: Instant::now() + node.settings.answer_timeout.0 };
            let export = move || {
                // It goes at its reader's pace: a thread and a place of its own, and not for ever.
                let _place = place;
                match export_npz(&mut model, io::BufWriter::with_capacity(PIECE, sender)) {
                    Ok(_) => is_whole.store(true, Release),
                    Err(error) => tracing::debug!(%error, "an export was broken off"),
                }
                drop(open);
            };
            let started = std::thread::Builder::new().name("export".to_owned()).spawn(export);
            started.map_err(|error| anyhow::Error::new(error).context("no thread for an export"))?;
            let pieces = stream::unfold(Some(received), move |received| {
                let whole = whole.clone();
                async move {
                    let mut received = received?;
                    match received.recv().await {
                        Some(piece) => Some((Ok(piece), Some(received))),
                        None if whole.load(Acquire) => None,
                        // Breaks the answer off, so that the reader notices.
                        None => Some((Err(io::Error::other("the export was broken off")), None)),
                    }
                }
            });
            Ok((kind, Body::from_stream(pieces)).into_response())
        }
        Some(other) => {
            let text = format!("no format `{}`: use `safetensors` or `npz`", other.escape_debug());
            Err(ApiError::new(Kind::InvalidRequest, text))
        }
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "`answer_timeout` is over")
}

/// Writes to whoever fetches, until it has taken too long.
struct Sender {
    pieces: mpsc::Sender<Bytes>,
    runtime: Handle,
    until: Instant,
}

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let send = self.pieces.send(Bytes::copy_from_slice(bytes));
        let in_time = async { tokio::time::timeout_at(self.until.into(), send).await };
        match self.runtime.block_on(in_time) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the reader has gone")),
            Err(_) => Err(too_slow()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Delete a model.
#[utoipa::path(
    delete, path = "/v1/models/{name}", tag = TAG, operation_id = "delete_model", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let owner = tenant.clone();
    to_the_end(&tenant, async move { node.catalog.delete_model(&owner, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
