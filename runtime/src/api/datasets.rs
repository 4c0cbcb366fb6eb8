//! Data sets: create, add to, list, look at, delete.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::changes::to_the_end;
use super::charged::{ITEM, charged};
use super::functions::Page;
use super::problem::ApiError;
use super::request::{Params, Pieces};
use super::types::{DataSetDetail, DataSetList, DataSetVersionView, DataSetView, Problem, SplitView, StatisticsView};
use crate::catalog::spec::DataSetSpec;
use crate::catalog::{CatalogError, DataSet, Version};
use crate::clock::rfc3339;
use crate::dataset::{Features, Labels, Manifest, Split};
use crate::node::Node;
use crate::tenant::ChargedBytes;

const TAG: &str = "datasets";
/// Entries of the statistics that are shown.
const MOST_STATISTICS: usize = 16;

/// Which version.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// The beginning of its digest; the newest unless given.
    version: Option<String>,
}

fn view(dataset: &DataSet) -> DataSetView {
    let latest = dataset.latest();
    DataSetView {
        name: dataset.name.to_string(),
        version: latest.map(|version| version.digest.to_string()).unwrap_or_default(),
        created_at: rfc3339(dataset.created_ms),
        updated_at: rfc3339(latest.map_or(dataset.created_ms, |version| version.created_ms)),
        train: latest.map_or(0, |version| version.train),
        test: latest.map_or(0, |version| version.test),
        versions: dataset.versions.len(),
        stored_bytes: dataset.stored_bytes,
    }
}

fn detail(dataset: &DataSet, version: &Version, manifest: &Manifest, preview: String) -> DataSetDetail {
    let (kind, element, shape) = match &manifest.features {
        Features::Dense { element, shape } => ("dense", format!("{element:?}").to_lowercase(), shape.clone()),
        Features::Sparse { columns } => ("sparse", "f32".to_owned(), vec![*columns as usize]),
    };
    let labels = match manifest.labels {
        None => "none".to_owned(),
        Some(Labels::Class) => "class".to_owned(),
        Some(Labels::Values { width }) => format!("{width} values"),
    };
    let split = |split: &Split| SplitView {
        count: split.count,
        blocks: split.blocks.len(),
        bytes: split.blocks.iter().map(|block| block.bytes).sum(),
        classes: split.classes.clone(),
    };
    let statistics = &manifest.statistics;
    let entries = statistics.mean.len().min(MOST_STATISTICS);
    DataSetDetail {
        dataset: view(dataset),
        shown: version.digest.to_string(),
        kind: kind.to_owned(),
        element,
        shape,
        labels,
        classes: manifest.classes(),
        class_names: manifest.class_names.clone(),
        transform: manifest.transform.to_string(),
        synthetic: manifest.synthetic.clone(),
        train: split(&manifest.train),
        test: split(&manifest.test),
        statistics: StatisticsView {
            groups: statistics.mean.len(),
            mean: statistics.mean[..entries].to_vec(),
            deviation: (0..entries).map(|group| statistics.deviation(group)).collect(),
            low: statistics.low[..entries.min(statistics.low.len())].to_vec(),
            high: statistics.high[..entries.min(statistics.high.len())].to_vec(),
        },
        preview,
        versions: dataset
            .versions
            .iter()
            .map(|version| DataSetVersionView {
                version: version.digest.to_string(),
                created_at: rfc3339(version.created_ms),
                train: version.train,
                test: version.test,
            })
            .collect(),
    }
}

/// Create a data set from uploaded files, from a rule, or from what comes with Weft. It is there whole or not at all.
#[utoipa::path(
    put, path = "/v1/datasets/{name}", tag = TAG, operation_id = "create_dataset",
    params(("name" = String, Path)), request_body = DataSetSpec,
    responses(
        (status = 201, body = DataSetView),
        (status = 409, description = "There is one of that name, or an upload lacks parts", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The files cannot be used", body = Problem, content_type = "application/problem+json"),
        (status = 504, description = "It took longer than `build_timeout`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn create(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<(StatusCode, Json<DataSetView>), ApiError> {
    let spec: DataSetSpec = pieces.json().await?;
    let dataset = node.make_dataset(tenant, name.parse()?, spec, false).await?;
    Ok((StatusCode::CREATED, Json(view(&dataset))))
}

/// Add samples: a new version that shares the blocks of the old one.
#[utoipa::path(
    post, path = "/v1/datasets/{name}/append", tag = TAG, operation_id = "append_dataset",
    params(("name" = String, Path)), request_body = DataSetSpec,
    responses(
        (status = 200, body = DataSetView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The files cannot be used", body = Problem, content_type = "application/problem+json"),
        (status = 504, description = "It took longer than `build_timeout`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn append(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<Json<DataSetView>, ApiError> {
    let spec: DataSetSpec = pieces.json().await?;
    Ok(Json(view(&*node.make_dataset(tenant, name.parse()?, spec, true).await?)))
}

/// List data sets by name.
#[utoipa::path(
    get, path = "/v1/datasets", tag = TAG, operation_id = "list_datasets", params(Page),
    responses((status = 200, body = DataSetList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(page): Params<Page>,
) -> Result<Response, ApiError> {
    let (datasets, next) = page.of(node.catalog.datasets(tenant.id), |dataset| &dataset.name);
    charged(&node, &tenant, datasets.len() * ITEM, move || DataSetList {
        datasets: datasets.iter().map(|dataset| view(dataset)).collect(),
        next,
    })
    .await
}

/// Look at a data set: counts, shapes, classes, statistics, a preview.
#[utoipa::path(
    get, path = "/v1/datasets/{name}", tag = TAG, operation_id = "show_dataset", params(("name" = String, Path), Which),
    responses((status = 200, body = DataSetDetail), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(which): Params<Which>,
) -> Result<Response, ApiError> {
    let dataset = node.catalog.dataset(tenant.id, &name)?;
    let place = node.places.opening(&tenant).await?;
    let shown = dataset.clone();
    // Written where the manifest is read: it may name tens of thousands of classes.
    let describe = move |version: &Version, manifest: &Manifest, preview: String| {
        let detail = detail(&shown, version, manifest, preview);
        serde_json::to_vec(&detail).map_err(|error| CatalogError::io("describing a data set", error.into()))
    };
    let version = which.version.as_deref();
    let (json, mut charge) = node.catalog.look_at_dataset(&tenant, &dataset, version, place, describe).await?;
    charge.shrink(charge.bytes().saturating_sub(json.capacity() as u64));
    Ok(([(CONTENT_TYPE, "application/json")], Bytes::from_owner(ChargedBytes::new(json, charge))).into_response())
}

/// Fetch the manifest of a data set: what its samples are, and the blocks that they lie in.
#[utoipa::path(
    get, path = "/v1/datasets/{name}/manifest", tag = TAG, operation_id = "fetch_manifest",
    params(("name" = String, Path), Which),
    responses(
        (status = 200, description = "The manifest, as it is stored", body = Value, content_type = "application/json"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn manifest(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(which): Params<Which>,
) -> Result<Response, ApiError> {
    let dataset = node.catalog.dataset(tenant.id, &name)?;
    let place = node.places.opening(&tenant).await?;
    let write = |_: &Version, manifest: &Manifest, _: String| Ok(manifest.to_bytes());
    let version = which.version.as_deref();
    let (json, mut charge) = node.catalog.look_at_dataset(&tenant, &dataset, version, place, write).await?;
    charge.shrink(charge.bytes().saturating_sub(json.capacity() as u64));
    Ok(([(CONTENT_TYPE, "application/json")], Bytes::from_owner(ChargedBytes::new(json, charge))).into_response())
}

/// Fetch a block of a data set, as it is stored: so many samples, as the manifest says.
#[utoipa::path(
    get, path = "/v1/datasets/{name}/blocks/{digest}", tag = TAG, operation_id = "fetch_block",
    params(("name" = String, Path), ("digest" = String, Path), Which),
    responses(
        (status = 200, description = "The block", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn block(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path((name, digest)): Path<(String, String)>,
    Params(which): Params<Which>,
) -> Result<Response, ApiError> {
    let digest = digest.parse()?;
    let dataset = node.catalog.dataset(tenant.id, &name)?;
    let place = node.places.opening(&tenant).await?;
    let bytes = node.catalog.read_block(&tenant, &dataset, which.version.as_deref(), digest, place).await?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Bytes::from_owner(bytes)).into_response())
}

/// Delete a data set with all its versions.
#[utoipa::path(
    delete, path = "/v1/datasets/{name}", tag = TAG, operation_id = "delete_dataset", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let owner = tenant.clone();
    to_the_end(&tenant, async move { node.catalog.delete_dataset(&owner, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
