//! Studies: begin, list, look at, stop, resume, delete; ask and tell; and what a function declares that can be searched.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::AsTenant;
use super::changes::to_the_end;
use super::charged::{ITEM, charged};
use super::functions::Page;
use super::jobs::idempotency_key;
use super::problem::ApiError;
use super::request::{Params, Pieces};
use super::types::{
    AskAnswer, BestTrial, CurvePoint, DescriptionView, Importance, ParameterView, Problem, TellAnswer, TellRequest,
    TrialCounts, TrialList, TrialView, TuneDetail, TuneList, TuneView,
};
use crate::clock::{rfc3339, unix_ms};
use crate::node::Node;
use crate::study::{LiveStudy, Row, Shown, StudyRecord, TellWords, TrialState, TuneSpec, TuneState};
use crate::train::settings::json;
use weft_core::tune::importance::importance;
use weft_core::tune::sampler::Seen;
use weft_core::tune::study::observations;

const TAG: &str = "tunes";
/// Trials in one answer.
const PAGE: usize = 1_000;
/// Trials of which importance is computed: the latest. It takes some ten milliseconds for so many.
const WEIGHED: usize = 200;

/// Which studies.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TuneQuery {
    /// How many at most; 100 unless said otherwise, 1000 at most.
    #[param(value_type = Option<usize>)]
    limit: Option<NonZeroUsize>,
    /// Begin after this name.
    after: Option<String>,
    /// Only studies that are so.
    #[param(inline)]
    state: Option<TuneState>,
}

/// Which trials.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TrialQuery {
    /// How many at most; 1000 unless said otherwise, and never more.
    #[param(value_type = Option<usize>)]
    limit: Option<NonZeroUsize>,
    /// Begin after this number.
    after: Option<u32>,
    /// Only trials that are so.
    #[param(inline)]
    state: Option<TrialState>,
}

fn counts(shown: &Shown) -> TrialCounts {
    let mut counts = TrialCounts::default();
    for row in shown.iter() {
        let count = match TrialState::from(&row.trial.state) {
            TrialState::Waiting => &mut counts.waiting,
            TrialState::Running | TrialState::Pausing | TrialState::Stopping => &mut counts.running,
            TrialState::Paused => &mut counts.paused,
            TrialState::Done => &mut counts.done,
            TrialState::Pruned => &mut counts.pruned,
            TrialState::Stopped => &mut counts.stopped,
            TrialState::Failed => &mut counts.failed,
        };
        *count += 1;
    }
    counts
}

fn job(record: &StudyRecord, trial: u32) -> Option<String> {
    (!record.is_driven()).then(|| record.job_name(trial))
}

fn view(live: &LiveStudy) -> TuneView {
    let (record, shown) = (live.record(), live.shown());
    let best = live.best().map(|(row, value)| BestTrial {
        trial: row.trial.number,
        job: job(&record, row.trial.number),
        model: row.model.as_ref().map(ToString::to_string),
        value,
        point: row.trial.point.clone(),
    });
    let milliseconds = record.ended_ms.unwrap_or_else(unix_ms).saturating_sub(record.created_ms);
    TuneView {
        name: record.name.to_string(),
        state: record.state,
        reason: record.reason.clone(),
        function: record.spec.job.as_ref().map(|job| job.function.clone()),
        dataset: record.spec.job.as_ref().and_then(|job| job.dataset.clone()),
        goal: record.settings.goal.clone(),
        direction: record.settings.direction,
        sampler: record.settings.sampler.to_string(),
        prune: record.settings.pruner.to_string(),
        trials: record.settings.trials,
        parallel: record.settings.parallel,
        epochs: record.settings.epochs,
        counts: counts(&shown),
        best,
        spent: live.spent(),
        budget: record.settings.budget,
        created_at: rfc3339(record.created_ms),
        ended_at: record.ended_ms.map(rfc3339),
        seconds: milliseconds as f64 / 1e3,
    }
}

fn detail(live: &LiveStudy) -> TuneDetail {
    let (record, shown) = (live.record(), live.shown());
    let settings = &record.settings;
    let seen = observations(shown.iter().rev().take(WEIGHED).map(|row| &row.trial), settings.direction);
    let shares = importance(&settings.space, Seen { done: &seen, pending: &[] }, settings.seed).unwrap_or_default();
    TuneDetail {
        tune: view(live),
        spec: record.spec.clone(),
        search: settings.space.parameters().iter().map(ToString::to_string).collect(),
        seed: settings.seed,
        curve: live.curve().into_iter().map(|(trial, best)| CurvePoint { trial, best }).collect(),
        importance: shares.into_iter().map(|(parameter, share)| Importance { parameter, share }).collect(),
    }
}

fn trial_view(record: &StudyRecord, row: &Row) -> TrialView {
    let trial = &row.trial;
    TrialView {
        trial: trial.number,
        job: job(record, trial.number),
        state: TrialState::from(&trial.state),
        reason: row.reason(),
        point: trial.point.clone(),
        workers: trial.workers,
        epoch: trial.epoch(),
        until: trial.until,
        value: trial.value(record.settings.direction),
        reports: trial.reports.clone(),
        cost: trial.cost,
        seconds: row.seconds,
        started_ms: row.started_ms,
        ended_ms: row.ended_ms,
    }
}

/// Begin a study: many trials of a job, of which the best is looked for. With an `Idempotency-Key`, the same request sent
/// again begins no second one.
#[utoipa::path(
    post, path = "/v1/tunes", tag = TAG, operation_id = "begin_tune",
    params(("idempotency-key" = Option<String>, Header, description = "Made up by the client, 1 to 255 visible ASCII characters")),
    request_body = TuneSpec,
    responses(
        (status = 201, description = "The study is new", body = TuneView,
            headers(("location" = String, description = "The study"))),
        (status = 200, description = "The key was used for this request before: the study that it made", body = TuneView,
            headers(("location" = String, description = "The study"))),
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
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<TuneView>), ApiError> {
    let key = match idempotency_key(&headers) {
        Ok(key) => key,
        Err(error) => return Err(pieces.refuse(error).await),
    };
    let spec: TuneSpec = pieces.json().await?;
    let (studies, owner) = (node.studies.clone(), tenant.clone());
    let submit = async move { studies.submit(&owner, spec, key.as_deref()).await };
    let (live, is_new) = to_the_end(&tenant, submit).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(LOCATION, format!("/v1/tunes/{}", live.record().name))], Json(view(&live))))
}

/// List studies by name.
#[utoipa::path(
    get, path = "/v1/tunes", tag = TAG, operation_id = "list_tunes", params(TuneQuery),
    responses((status = 200, body = TuneList))
)]
pub async fn list(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Params(query): Params<TuneQuery>,
) -> Result<Response, ApiError> {
    let mut studies: Vec<_> =
        node.studies.roster.list(tenant.id).into_iter().map(|live| (live.record(), live)).collect();
    studies.retain(|(record, _)| query.state.is_none_or(|state| record.state == state));
    let (studies, next) = Page::new(query.limit, query.after).of(studies, |(record, _)| &record.name);
    let expected = studies.iter().map(|(_, live)| 2 * ITEM + live.shown().len()).sum();
    let make = move || TuneList { tunes: studies.iter().map(|(_, live)| view(live)).collect(), next };
    charged(&node, &tenant, expected, make).await
}

/// Look at a study: what was asked for, its best trial, how it came to that, and which parameters mattered.
#[utoipa::path(
    get, path = "/v1/tunes/{name}", tag = TAG, operation_id = "show_tune", params(("name" = String, Path)),
    responses((status = 200, body = TuneDetail), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn show(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let live = node.studies.roster.get(tenant.id, &name)?;
    // Importance takes a while: it is never computed on a thread that serves.
    charged(&node, &tenant, usize::MAX, move || detail(&live)).await
}

/// Delete a study that is over or stopped, with its trials and their jobs. The best trial's model stays.
#[utoipa::path(
    delete, path = "/v1/tunes/{name}", tag = TAG, operation_id = "delete_tune", params(("name" = String, Path)),
    responses(
        (status = 204),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It runs", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let (studies, owner) = (node.studies.clone(), tenant.clone());
    to_the_end(&tenant, async move { studies.delete(&owner, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the trials of a study by their numbers.
#[utoipa::path(
    get, path = "/v1/tunes/{name}/trials", tag = TAG, operation_id = "list_trials",
    params(("name" = String, Path), TrialQuery),
    responses((status = 200, body = TrialList), (status = 404, body = Problem, content_type = "application/problem+json"))
)]
pub async fn trials(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Params(query): Params<TrialQuery>,
) -> Result<Response, ApiError> {
    let live = node.studies.roster.get(tenant.id, &name)?;
    let (record, shown) = (live.record(), live.shown());
    let limit = query.limit.map_or(PAGE, |limit| limit.get().min(PAGE));
    let after = query.after.map_or(0, |after| after as usize + 1);
    let is_meant = |row: &&Arc<Row>| query.state.is_none_or(|state| TrialState::from(&row.trial.state) == state);
    let mut rest = shown.iter().skip(after).filter(is_meant);
    let page: Vec<Arc<Row>> = rest.by_ref().take(limit).cloned().collect();
    let next = rest.next().and(page.last()).map(|row| row.trial.number);
    let expected = page.iter().map(|row| ITEM + 64 * row.trial.reports.len()).sum();
    let make = move || TrialList { trials: page.iter().map(|row| trial_view(&record, row)).collect(), next };
    charged(&node, &tenant, expected, make).await
}

/// Stop a study. Its trials stop with checkpoints, and go on with it when it is resumed.
#[utoipa::path(
    post, path = "/v1/tunes/{name}/stop", tag = TAG, operation_id = "stop_tune", params(("name" = String, Path)),
    responses(
        (status = 200, body = TuneView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It does not run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn stop(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Json<TuneView>, ApiError> {
    let (studies, owner) = (node.studies.clone(), tenant.clone());
    let live = to_the_end(&tenant, async move { studies.stop(&owner, &name).await }).await?;
    Ok(Json(view(&live)))
}

/// Go on with a study that was stopped, with the trials that it had.
#[utoipa::path(
    post, path = "/v1/tunes/{name}/resume", tag = TAG, operation_id = "resume_tune", params(("name" = String, Path)),
    responses(
        (status = 200, body = TuneView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not one to resume", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn resume(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Json<TuneView>, ApiError> {
    let (studies, owner) = (node.studies.clone(), tenant.clone());
    let live = to_the_end(&tenant, async move { studies.resume(&owner, &name).await }).await?;
    Ok(Json(view(&live)))
}

/// Ask a study for a trial to do, in a loop outside (`parallel` 0): a new one, or one that was paused and goes on.
#[utoipa::path(
    post, path = "/v1/tunes/{name}/ask", tag = TAG, operation_id = "ask_tune", params(("name" = String, Path)),
    responses(
        (status = 200, body = AskAnswer),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It starts its trials by itself, or is stopped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn ask(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Json<AskAnswer>, ApiError> {
    let (studies, owner) = (node.studies.clone(), tenant.clone());
    let told = to_the_end(&tenant, async move { studies.ask(&owner, &name).await }).await?;
    Ok(Json(AskAnswer {
        trial: told.row.map(|row| trial_view(&told.record, &row)),
        state: told.record.state,
        reason: told.record.reason.clone(),
    }))
}

/// Tell a study of a trial that a loop outside does: a value after an epoch, or how it ended. The answer says whether it is
/// to go on.
#[utoipa::path(
    post, path = "/v1/tunes/{name}/tell", tag = TAG, operation_id = "tell_tune", params(("name" = String, Path)),
    request_body = TellRequest,
    responses(
        (status = 200, body = TellAnswer),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "That cannot be of this trial as it is", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn tell(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    pieces: Pieces,
) -> Result<Json<TellAnswer>, ApiError> {
    // An unknown name is refused before its body is kept.
    let live = match node.studies.roster.get(tenant.id, &name) {
        Ok(live) => live,
        Err(error) => return Err(pieces.refuse(error).await),
    };
    let TellRequest { trial, epoch, value, cost, outcome, reason } = pieces.json().await?;
    let words = TellWords { trial, epoch, value, cost, outcome, reason };
    let (studies, owner) = (node.studies.clone(), tenant.clone());
    let told = to_the_end(&tenant, async move { studies.tell(&owner, &name, words).await }).await?;
    let row = told.row.or_else(|| live.shown().get(trial as usize).cloned());
    let row = row.ok_or_else(|| ApiError::not_found(&format!("there is no trial {trial}")))?;
    let (state, reason) = (told.record.state, told.record.reason.clone());
    Ok(Json(TellAnswer { trial: trial_view(&told.record, &row), state, reason }))
}

/// Read what a trainer says of itself: its parameters, and what of them a study searches that names none.
#[utoipa::path(
    get, path = "/v1/functions/{name}/description", tag = "functions", operation_id = "describe_function",
    params(("name" = String, Path)),
    responses(
        (status = 200, body = DescriptionView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "It does not train", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn describe(
    AsTenant(tenant): AsTenant,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let described = node.studies.declared(&tenant, &name).await?;
    let expected = described.description.hyper_parameters.len() * ITEM;
    charged(&node, &tenant, expected, move || {
        let description = described.description;
        let parameters = description.hyper_parameters.into_iter().map(|parameter| ParameterView {
            default: json(&parameter.default),
            low: parameter.low.as_ref().map(json),
            high: parameter.high.as_ref().map(json),
            name: parameter.name,
            summary: parameter.summary,
            choices: parameter.choices,
            log: parameter.logarithmic,
        });
        DescriptionView {
            summary: description.summary,
            parameters: parameters.collect(),
            search: described.search.iter().map(ToString::to_string).collect(),
        }
    })
    .await
}
