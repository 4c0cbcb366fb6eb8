//! Training jobs: submit, list, look at, stop, resume, delete, use.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::changes::to_the_end;
use super::charged::{ITEM, charged};
use super::functions::Page;
use super::problem::{ApiError, Kind};
use super::request::{Params, Pieces, cursor};
use super::types::{
    InferAnswer, InferRequest, JobDetail, JobHistory, JobList, JobView, JobsPruned, PlanView, Problem, ResumeRequest,
};
use crate::clock::{rfc3339, unix_ms};
use crate::job::{EpochRecord, Job, JobSpec, State as JobState, costs};
use crate::node::Node;
use crate::tenant::{Charge, Tenant};
use weft_core::plan::course::CourseRecord;
use weft_core::spec::{CheckedPlan, ShapeChange};

const TAG: &str = "jobs";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_KEY: usize = 255;
/// Epochs in one answer. A job is shown with the latest; all of them are in its history, page by page.
const SHOWN: usize = 1_000;
/// Bytes of samples that are read on the thread that received them: some hundred microseconds.
const PARSED_AT_ONCE: usize = 64 << 10;
/// The most bytes that a byte of JSON becomes: `[0],` a vector of its own.
const UNPACKED: u64 = 10;

/// Which jobs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    /// How many at most; 100 unless said otherwise, 1000 at most.
    #[param(value_type = Option<usize>)]
    limit: Option<NonZeroUsize>,
    /// Begin after this name.
    #[serde(default, deserialize_with = "cursor")]
    after: Option<String>,
    /// Only jobs that are so.
    #[param(inline)]
    state: Option<JobState>,
    /// Also those that are trials of studies.
    trials: Option<bool>,
}

/// Which epochs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EpochQuery {
    /// How many at most; 1000 unless said otherwise, and never more.
    #[param(value_type = Option<usize>)]
    limit: Option<NonZeroUsize>,
    /// Begin after this epoch.
    after: Option<u64>,
}

/// A job, and how many of its tenant's come before it if it waits.
fn view(job: &Job, queue_position: Option<usize>) -> JobView {
    let validated = job.history.iter().rev().find(|epoch| !epoch.validation.is_empty());
    let validation = |metric: &str| validated.and_then(|epoch| epoch.validation.get(metric).copied());
    let milliseconds = job.started_ms.map_or(0, |start| job.ended_ms.unwrap_or_else(unix_ms).saturating_sub(start));
    JobView {
        name: job.name.to_string(),
        state: job.state,
        reason: job.reason.clone(),
        queue_position: queue_position.filter(|_| job.state == JobState::Queued),
        function: job.spec.function.clone(),
        dataset: job.spec.dataset.clone(),
        workers: job.shape().workers,
        epochs: job.epochs().end,
        epoch: job.history.last().map_or(0, |epoch| epoch.epoch),
        train_loss: job.history.last().map(|epoch| epoch.train_loss),
        validation_loss: validation("loss"),
        accuracy: validation("accuracy"),
        cost: job.spending.cost,
        created_at: rfc3339(job.created_ms),
        started_at: job.started_ms.map(rfc3339),
        ended_at: job.ended_ms.map(rfc3339),
        seconds: milliseconds as f64 / 1e3,
        tune: job.trial.as_ref().map(|trial| trial.study.to_string()),
        trial: job.trial.as_ref().map(|trial| trial.number),
    }
}

fn position(job: &Job, node: &Node) -> Option<usize> {
    let waits = job.state == JobState::Queued;
    waits.then(|| node.jobs.roster.queue_position(job.tenant, job.name.as_str()))?
}

fn detail(job: &Job, queue_position: Option<usize>) -> JobDetail {
    JobDetail {
        job: view(job, queue_position),
        spec: job.spec.clone(),
        shape: job.shape(),
        changes: job.changes.clone(),
        seed: job.seed,
        version: job.version.to_string(),
        following: job.following.clone(),
        data_version: job.data.map(|digest| digest.to_string()),
        ready_ms: job.ready_ms,
        checkpoint: job.checkpoint,
        models: job.models.iter().map(ToString::to_string).collect(),
        spending: job.spending,
        costs: costs(job.history.iter().map(|epoch| &**epoch)),
        losses: job.losses,
        starts: job.starts,
        history: shown(job).map(|epoch| EpochRecord::clone(epoch)).collect(),
    }
}

/// All about one job.
async fn told(node: &Node, tenant: &Tenant, job: Arc<Job>) -> Result<Response, ApiError> {
    let position = position(&job, node);
    let expected = 8 * ITEM + shown(&job).map(|epoch| written(epoch)).sum::<usize>();
    charged(node, tenant, expected, move || detail(&job, position)).await
}

/// The epochs that a job is shown with.
fn shown(job: &Job) -> impl Iterator<Item = &Arc<EpochRecord>> {
    job.history[job.history.len().saturating_sub(SHOWN)..].iter()
}

/// About how many bytes of JSON an epoch is: twice what it takes in memory.
fn written(epoch: &EpochRecord) -> usize {
    usize::try_from(2 * epoch.bytes()).unwrap_or(usize::MAX)
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=MAX_KEY).contains(&text.len()));
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    text.map(|text| Some(text.to_owned())).ok_or_else(|| {
        let detail = format!("`Idempotency-Key` must be 1 to {MAX_KEY} visible ASCII characters");
        ApiError::new(Kind::InvalidRequest, detail)
    })
}

/// Submit a job: a trainer, a data set, and how to train. With an `Idempotency-Key`, the same request sent again makes no
/// second job.
#[utoipa::path(
    post, path = "/v1/jobs", tag = TAG, operation_id = "submit_job",
    params(("idempotency-key" = Option<String>, Header, description = "Made up by the client, 1 to 255 visible ASCII characters")),
    request_body = JobSpec,
    responses(
        (status = 201, description = "The job is new", body = JobView,
            headers(("location" = String, description = "The job"))),
        (status = 200, description = "The key was used for this request before: the job that it made", body = JobView,
            headers(("location" = String, description = "The job"))),
        (status = 404, description = "There is no such function, data set or model", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is one of that name, or the key was used for another request", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "It cannot be run: `word` says which word is wrong", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn submit(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    headers: HeaderMap,
    pieces: Pieces,
) -> Result<(StatusCode, [(axum::http::HeaderName, String); 1], Json<JobView>), ApiError> {
    let key = match idempotency_key(&headers) {
        Ok(key) => key,
        Err(error) => return Err(pieces.refuse(error).await),
    };
    let spec: JobSpec = pieces.json().await?;
    let (submitting, owner) = (node.jobs.clone(), tenant.clone());
    let submit = async move { submitting.submit(&owner, spec, key.as_deref()).await };
    let (job, is_new) = to_the_end(&tenant, submit).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(LOCATION, format!("/v1/jobs/{}", job.name))], Json(view(&job, position(&job, &node)))))
}

/// List jobs by name.
#[utoipa::path(
    get, path = "/v1/jobs", tag = TAG, operation_id = "list_jobs", params(JobQuery),
    responses((status = 200, body = JobList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(query): Params<JobQuery>,
) -> Result<Response, ApiError> {
    let mut jobs = node.jobs.roster.list(tenant.id);
    let trials = query.trials.unwrap_or(false);
    jobs.retain(|job| query.state.is_none_or(|state| job.state == state) && (trials || job.trial.is_none()));
    let (jobs, next) = Page::new(query.limit, query.after).of(jobs, |job| &job.name);
    // One look at the queue, however many of them wait.
    let positions = match jobs.iter().any(|job| job.state == JobState::Queued) {
        true => node.jobs.roster.queue_positions(tenant.id),
        false => HashMap::new(),
    };
    charged(&node, &tenant, jobs.len() * ITEM, move || JobList {
        jobs: jobs.iter().map(|job| view(job, positions.get(job.name.as_str()).copied())).collect(),
        next,
    })
    .await
}

/// Look at a job: what was asked for, how far it is, and what it came to.
#[utoipa::path(
    get, path = "/v1/jobs/{name}", tag = TAG, operation_id = "show_job", params(("name" = String, Path)),
    responses((status = 200, body = JobDetail), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    told(&node, &tenant, node.jobs.roster.get(tenant.id, &name)?).await
}

/// A [`JobHistory`] whose epochs are where they are kept.
#[derive(Serialize)]
struct HistoryPage {
    #[serde(serialize_with = "shared")]
    epochs: Vec<Arc<EpochRecord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

fn shared<S: Serializer>(epochs: &[Arc<EpochRecord>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(epochs.iter().map(|epoch| &**epoch))
}

/// Read what the epochs of a job came to: losses, times by stage, what was used.
#[utoipa::path(
    get, path = "/v1/jobs/{name}/history", tag = TAG, operation_id = "job_history",
    params(("name" = String, Path), EpochQuery),
    responses((status = 200, body = JobHistory), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn history(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(query): Params<EpochQuery>,
) -> Result<Response, ApiError> {
    let job = node.jobs.roster.get(tenant.id, &name)?;
    let start = query.after.map_or(0, |after| job.history.partition_point(|epoch| epoch.epoch <= after));
    let rest = &job.history[start..];
    let page = &rest[..rest.len().min(query.limit.map_or(SHOWN, |limit| limit.get().min(SHOWN)))];
    let next = page.last().filter(|_| page.len() < rest.len()).map(|epoch| epoch.epoch);
    let (epochs, expected) = (page.to_vec(), page.iter().map(|epoch| written(epoch)).sum());
    charged(&node, &tenant, expected, move || HistoryPage { epochs, next }).await
}

/// What is planned about a job: its decisions with what came of them, what was spent, and what one may choose between.
#[utoipa::path(
    get, path = "/v1/jobs/{name}/plan", tag = TAG, operation_id = "job_plan", params(("name" = String, Path)),
    responses(
        (status = 200, body = PlanView),
        (status = 404, description = "There is no such job, or nothing is planned about it", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn plan(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let job = node.jobs.roster.get(tenant.id, &name)?;
    let Some(plan) = job.spec.check().ok().and_then(|spec| spec.plan) else {
        let text = format!("nothing is planned about job `{name}`: it was submitted without `plan`");
        return Err(ApiError::new(Kind::NotFound, text));
    };
    let decisions = job.plan.as_ref().map_or(0, |record| record.events.len() + record.earlier.len());
    charged(&node, &tenant, (decisions + 1) * ITEM, move || plan_view(&job, &plan)).await
}

fn plan_view(job: &Job, plan: &CheckedPlan) -> PlanView {
    let record = job.plan.as_deref();
    let shape = job.shape();
    PlanView {
        job: job.name.to_string(),
        policy: plan.policy.to_string(),
        only: plan.only,
        bounds: plan.bounds,
        limits: plan.policy.limits(&plan.limits),
        start: record.map_or(shape, |record| record.start),
        shape,
        spent: record.map(CourseRecord::spent).unwrap_or_default(),
        left: record.map_or(0, |record| record.left),
        is_settled: record.is_some_and(|record| record.is_settled),
        decisions: record.map(CourseRecord::decisions).unwrap_or_default(),
        forgotten: record.map_or(0, |record| record.forgotten),
        points: record.map(|record| record.points.clone()).unwrap_or_default(),
        recommendation: record.and_then(|record| record.recommendation.clone()),
    }
}

/// Stop a job. It keeps its model, its history and a checkpoint, from which it can be resumed.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/stop", tag = TAG, operation_id = "stop_job", params(("name" = String, Path)),
    responses((status = 200, body = JobView), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn stop(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Json<JobView>, ApiError> {
    let (stopping, owner) = (node.jobs.clone(), tenant.clone());
    let job = to_the_end(&tenant, async move { stopping.stop(&owner, &name).await }).await?;
    Ok(Json(view(&job, position(&job, &node))))
}

/// Go on with a job that was stopped or failed, from its last checkpoint: to its end, or up to an epoch.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/resume", tag = TAG, operation_id = "resume_job", params(("name" = String, Path)),
    request_body = ResumeRequest,
    responses(
        (status = 200, body = JobView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not one to resume", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn resume(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<Json<JobView>, ApiError> {
    // An unknown name is refused before its body is kept.
    if let Err(error) = node.jobs.roster.get(tenant.id, &name) {
        return Err(pieces.refuse(error).await);
    }
    let ResumeRequest { until } = pieces.json().await?;
    let (resuming, owner) = (node.jobs.clone(), tenant.clone());
    let job = to_the_end(&tenant, async move { resuming.resume_until(&owner, &name, until).await }).await?;
    Ok(Json(view(&job, position(&job, &node))))
}

/// Have a job go on with more or fewer workers, or with larger or smaller ones: at the end of its round, or from an epoch
/// on. A job that does not run has them when it does. Where there is no room, it goes on as it is until there is.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/scale", tag = TAG, operation_id = "scale_job", params(("name" = String, Path)),
    request_body = ShapeChange,
    responses(
        (status = 200, body = JobDetail),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is done", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "It cannot have such workers: `word` says which word is wrong", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn scale(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<Response, ApiError> {
    // An unknown name is refused before its body is kept.
    if let Err(error) = node.jobs.roster.get(tenant.id, &name) {
        return Err(pieces.refuse(error).await);
    }
    let change: ShapeChange = pieces.json().await?;
    let (scaling, of) = (node.jobs.clone(), tenant.clone());
    let job = to_the_end(&tenant, async move { scaling.scale(&of, &name, change).await }).await?;
    told(&node, &tenant, job).await
}

/// Kill a worker of a running job, as if it had died: the job starts it again. For trying out what happens then.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/workers/{worker}/kill", tag = TAG, operation_id = "kill_worker",
    params(("name" = String, Path), ("worker" = u32, Path, description = "Counted from 0")),
    responses(
        (status = 204),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The job does not run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn kill_worker(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path((name, worker)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let worker = worker.parse().map_err(|_| {
        let detail = format!("`{}` is no worker's number: they are counted from 0", worker.escape_debug());
        ApiError::new(Kind::InvalidRequest, detail)
    })?;
    node.jobs.kill_worker(&tenant, &name, worker).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a job that is over, with its history, its log and its checkpoint. Its models stay.
#[utoipa::path(
    delete, path = "/v1/jobs/{name}", tag = TAG, operation_id = "delete_job", params(("name" = String, Path)),
    responses(
        (status = 204),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not over", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let owner = tenant.clone();
    to_the_end(&tenant, async move { node.jobs.delete(&owner, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete all jobs that are over. Their models stay.
#[utoipa::path(
    post, path = "/v1/jobs/prune", tag = TAG, operation_id = "prune_jobs",
    responses((status = 200, body = JobsPruned))
)]
async fn prune(tenant: Arc<Tenant>, node: Arc<Node>) -> Result<Json<JobsPruned>, ApiError> {
    let owner = tenant.clone();
    let deleted = to_the_end(&tenant, async move { node.jobs.prune(&owner).await }).await?;
    Ok(Json(JobsPruned { deleted }))
}

/// What is posted to where a job could be: a route of its own would hide a job that is called `prune`.
pub async fn posted(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Response {
    match name.as_str() {
        "prune" => prune(tenant, node).await.into_response(),
        _ => super::wrong_method(Method::POST, uri).await,
    }
}

/// Use the model of a job on samples.
#[utoipa::path(
    post, path = "/v1/jobs/{name}/infer", tag = TAG, operation_id = "infer_job", params(("name" = String, Path)),
    request_body = InferRequest,
    responses(
        (status = 200, body = InferAnswer),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has no model yet", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The samples are not what it takes", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn infer(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<Response, ApiError> {
    // An unknown name is refused before its body is kept.
    if let Err(error) = node.jobs.roster.get(tenant.id, &name) {
        return Err(pieces.refuse(error).await);
    }
    let mut charge = Charge::none(tenant.memory.clone());
    let body = pieces.which_is_json().await?.read(node.settings.max_body.0, "max_body", &mut charge).await?;
    charge.grow(body.len() as u64 * UNPACKED)?;
    let samples = parse_samples(&node, &tenant, body).await?;
    let outputs = node.jobs.infer(&tenant, &name, samples).await?;
    Ok(([(CONTENT_TYPE, "application/json")], Bytes::from_owner(outputs)).into_response())
}

/// Samples as they came. Megabytes of numbers take longer to read than a call may wait for a thread of HTTP: they are read
/// on another one, for which there is a gate.
async fn parse_samples(node: &Node, tenant: &Tenant, body: Vec<u8>) -> Result<Vec<Vec<f32>>, ApiError> {
    let parse = |body: &[u8]| match serde_json::from_slice(body) {
        Ok(InferRequest { samples }) => Ok(samples),
        Err(error) => Err(ApiError::new(Kind::InvalidRequest, format!("the JSON does not fit: {error}"))),
    };
    if body.len() <= PARSED_AT_ONCE {
        return parse(&body);
    }
    let _place = node.places.opening(tenant).await?;
    let parsed = tokio::task::spawn_blocking(move || parse(&body)).await;
    parsed.map_err(|error| ApiError::from(anyhow::Error::new(error).context("reading samples")))?
}
