//! How many epochs a job needs to its goal: counted on a tenth of its data (LambdaML, section 5.3).
//!
//! The tenth is a data set of its own, which is deleted afterwards. Its batches are a tenth as large, so that an epoch has
//! as many steps as one of all data; it is validated with all samples to test with.

use anyhow::Context;
use weft_core::plan::analytic::epochs::{Epochs, FRACTION, batch, count};
use weft_core::spec::{Memory, Workers};

use super::probing::{ProbeJob, Profiling};
use super::{Question, Variant};
use crate::catalog::spec::{DataSetSpec, SampleSpec};
use crate::cli::client::Client;
use crate::cli::job::all_epochs;
use crate::cli::output::Output;
use crate::digest::hex;
use crate::job::JobSpec;
use crate::names::Name;

/// Epochs after which a sample is given up, if the job was not given more.
const MOST_EPOCHS: u64 = 50;

/// A data set that is deleted when it is dropped.
struct Sample<'a> {
    name: Name,
    client: &'a Client,
    out: &'a Output,
}

impl Drop for Sample<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.client.delete_dataset(&self.name) {
            self.out.diagnose(format_args!("the sample is left as data set `{}`: {error}", self.name));
        }
    }
}

/// Trains on a sample until the goal is reached.
pub fn epochs(question: &Question, goal: f64, client: &Client, out: &Output) -> anyhow::Result<(Epochs, Profiling)> {
    let of = question.spec.dataset.clone().context("without `--dataset` there are no samples to count epochs on")?;
    let mut random = [0; 6];
    getrandom::fill(&mut random)?;
    let name: Name = format!("plan-{}", hex(&random)).parse()?;
    let sample = SampleSpec { of, part: FRACTION, seed: question.spec.seed.unwrap_or(0) };
    client.create_dataset(&name, &DataSetSpec { sample: Some(sample), ..DataSetSpec::default() })?;
    let sample = Sample { name, client, out };
    out.note(format_args!("training on a tenth of the samples, to an accuracy of {goal} …"));
    let spec = Variant::default().over(&question.spec);
    let spec = JobSpec {
        dataset: Some(sample.name.to_string()),
        workers: Workers::exactly(question.spec.workers.least),
        memory: Memory::Bytes(question.sizes.least),
        batch: batch(spec.batch, FRACTION),
        global_batch: spec.global_batch.map(|samples| batch(samples, FRACTION)),
        batch_schedule: spec
            .batch_schedule
            .iter()
            .map(|(epoch, samples)| (*epoch, batch(*samples, FRACTION)))
            .collect(),
        epochs: question.spec.epochs.max(MOST_EPOCHS),
        validate_every: 1,
        goal_accuracy: Some(goal),
        ..spec
    };
    let (job, detail) = ProbeJob::run(spec, client, out)?;
    let history = all_epochs(job.name(), client)?.epochs;
    let wrong: Option<Vec<f64>> = history.iter().map(|epoch| Some(1.0 - epoch.validation.get("accuracy")?)).collect();
    let wrong = wrong.context("the function tells no accuracy, or there are no samples to test with")?;
    let profiling = Profiling { tries: 1, seconds: detail.job.seconds, cost: detail.spending.cost };
    // An accuracy is as good as the part that is wrong is low; a goal that was just reached is reached.
    let counted = count(&wrong, 1.0 - goal + 1e-9);
    let best = 1.0 - wrong.iter().copied().fold(1.0, f64::min);
    let why = in_words(&counted, goal, best);
    Ok((Epochs { why, ..counted }, profiling))
}

fn in_words(epochs: &Epochs, goal: f64, best: f64) -> String {
    let Epochs { expected, is_reached, .. } = epochs;
    match is_reached {
        true => format!("On a tenth of the samples, an accuracy of {goal} was reached after {expected:.1} epochs."),
        false => format!(
            "On a tenth of the samples, {expected:.0} epochs reached an accuracy of {best:.4} and not {goal}: more are \
             needed, and how many more is not known. With so small a batch, a lower `--lr` may help."
        ),
    }
}
