//! `train`: a job.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

use super::super::cache::Reads;
use super::{Doing, found, output};
use crate::cli::client::ClientError;
use crate::cli::deploy;
use crate::cli::train::{is_path, submit_as, watch};
use crate::digest::Digest;
use crate::job::{JobSpec, State};
use crate::names::Name;

/// Times that another job is begun because the model of the one before is gone.
const ATTEMPTS: u32 = 16;

/// Deploys a function that is given by its path, and puts its name there.
pub(super) fn deploy_function(doing: &mut Doing<'_>) -> anyhow::Result<()> {
    let Some(function) = doing.text("function")?.filter(|function| is_path(function, "wasm")) else { return Ok(()) };
    let place = doing.place;
    let (deployed, _) = deploy::deploy(&place.folder.join(function), None, place.client, place.out)?;
    doing.words.insert("function".to_owned(), deployed.function.name.into());
    Ok(())
}

/// The versions on the node that a job would be trained on.
pub(super) fn reads_of(doing: &Doing<'_>) -> anyhow::Result<Reads> {
    let client = doing.place.client;
    let function = doing.name_of("function")?;
    let mut reads = Reads::from([("function".to_owned(), client.function(&function)?.version)]);
    if doing.text("dataset")?.is_some() {
        let name = doing.name_of("dataset")?;
        reads.insert("data set".to_owned(), client.dataset(&name, None)?.dataset.version);
    }
    if doing.text("init_from")?.is_some() {
        let name = doing.name_of("init_from")?;
        reads.insert("model".to_owned(), client.model(&name)?.model.digest);
    }
    Ok(reads)
}

/// Puts its own words over those of `like`: a table of words, such as the best trial of a study has.
fn take_over(doing: &mut Doing<'_>) -> anyhow::Result<()> {
    let Some(like) = doing.words.remove("like") else { return Ok(()) };
    let Value::Object(mut words) = like else { bail!("`like` must be a table of a job's words") };
    // Parameters one by one: whoever gives one of them keeps the others.
    let params = words.remove("params").and_then(|params| params.as_object().cloned()).unwrap_or_default();
    words.extend(std::mem::take(&mut doing.words));
    let own = words.remove("params");
    let own = own.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let params: Map<String, Value> = params.into_iter().chain(own).collect();
    if !params.is_empty() {
        words.insert("params".to_owned(), Value::Object(params));
    }
    doing.words = words;
    Ok(())
}

pub fn reads(doing: &mut Doing<'_>) -> anyhow::Result<Reads> {
    take_over(doing)?;
    deploy_function(doing)?;
    spec(doing)?;
    reads_of(doing)
}

fn spec(doing: &Doing<'_>) -> anyhow::Result<JobSpec> {
    let spec: JobSpec = serde_json::from_value(Value::Object(doing.words.clone()))?;
    ensure!(spec.name.is_none(), "`name`: a step's job is named after the step: leave it out");
    ensure!(spec.follow.is_none(), "`follow`: a job that waits for data is never done: leave it out");
    Ok(spec)
}

pub fn holds(doing: &Doing<'_>, outputs: &Map<String, Value>) -> anyhow::Result<bool> {
    let name: Name = output(outputs, "model").parse()?;
    let model = found(doing.place.client.model(&name))?;
    Ok(model.is_some_and(|model| model.model.digest == output(outputs, "digest")))
}

pub fn run(doing: &Doing<'_>, key: &Digest) -> anyhow::Result<Map<String, Value>> {
    let (client, out) = (doing.place.client, doing.place.out);
    for attempt in 1..=ATTEMPTS {
        let name = doing.thing(key, attempt)?;
        let mut spec = spec(doing)?;
        spec.name = Some(name.to_string());
        // The same step with the same words gives the same bits.
        spec.seed = spec.seed.or_else(|| Some(doing.seed()));
        let job = match submit_as(Some(&format!("pipeline:{key}:{attempt}")), out, |key| client.submit_job(&spec, key))
        {
            // It was asked for with other names for the same content.
            Err(ClientError::Problem { problem, .. }) if problem.status == 409 => continue,
            submitted => submitted?,
        };
        if matches!(job.state, State::Stopped | State::Failed) {
            out.note(format_args!("job `{name}` was {}: going on with it", job.state.word()));
            client.resume_job(&name)?;
        }
        let detail = watch::until_over(&name, client, out)?;
        if detail.job.state != State::Done {
            bail!("job `{name}` is {}: {}", detail.job.state.word(), detail.job.reason);
        }
        let model = detail.models.last().with_context(|| format!("job `{name}` has left no model"))?;
        let model: Name = model.parse()?;
        // Somebody has deleted it since: another job makes it again.
        let Some(kept) = found(client.model(&model))? else { continue };
        let (accuracy, loss) = (detail.job.accuracy, detail.job.validation_loss.or(detail.job.train_loss));
        let outputs =
            json!({ "job": name, "model": model, "digest": kept.model.digest, "accuracy": accuracy, "loss": loss });
        return Ok(outputs.as_object().cloned().unwrap_or_default());
    }
    bail!("the models of {ATTEMPTS} jobs of this step were deleted: delete the jobs too, with `weft job prune`")
}
