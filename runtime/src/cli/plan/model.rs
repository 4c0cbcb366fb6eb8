//! `weft plan --model`: what a job would take by calculation (LambdaML, section 5.3), and what it would if something were
//! different.

use anyhow::Context;
use serde::Serialize;
use weft_core::plan::analytic::what_if::Case;
use weft_core::plan::analytic::{Constants, Measured, Pattern, Prediction, Rounds, Work, constants, predict};
use weft_core::plan::words::{money, spoken};
use weft_core::spec::{K, Memory, Workers};
use weft_core::usage::Stages;

use super::calibrate::Calibration;
use super::probing::{ProbeJob, TRY_EPOCHS, counted, doubling};
use super::{Question, Variant};
use crate::api::types::JobDetail;
use crate::cli::client::Client;
use crate::cli::failure::UsageError;
use crate::cli::output::{Output, Style};
use crate::job::JobSpec;
use crate::names::Name;

/// All constants of the paper's table 6 at once.
const LAMBDAML: &str = "lambdaml";
const MEGABYTE: f64 = 1e6;

/// What was calculated.
#[derive(Debug, Serialize)]
struct Answer {
    /// What goes in: sizes in MB, and one measured epoch.
    work: Work,
    predictions: Vec<Row>,
    /// Questions that were asked, if any.
    what_if: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// Whose constants.
    constants: String,
    note: String,
    #[serde(flatten)]
    predicted: Prediction,
    /// If it were as asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<Prediction>,
}

/// Measures one epoch of one worker, and calculates the rest.
pub fn run(
    question: &Question,
    preset: Option<&str>,
    what_if: &[String],
    client: &Client,
    out: &Output,
) -> anyhow::Result<()> {
    // Before anything is measured: what is asked wrongly is refused at once.
    let sets = constant_sets(question, preset, client)?;
    let work = work(question, client, out)?;
    let Workers { least, most } = question.spec.workers;
    let mut predictions = Vec::new();
    for (name, constants) in sets {
        for workers in doubling(u64::from(least), u64::from(most)) {
            let workers = u32::try_from(workers)?;
            let mut case = Case { constants: constants.clone(), work: work.clone(), workers };
            for word in what_if {
                case.ask(word).map_err(|error| UsageError(error.to_string()))?;
            }
            let predicted = predict(&constants, &work, workers);
            let asked = (!what_if.is_empty()).then(|| predict(&case.constants, &case.work, case.workers));
            predictions.push(Row { constants: name.clone(), note: constants.note.clone(), predicted, asked });
        }
    }
    let answer = Answer { work, predictions, what_if: what_if.to_vec() };
    out.show(&answer, || text(&answer, out))
}

/// Refuses words that are no question, whatever is measured later.
pub fn check(what_if: &[String]) -> Result<(), UsageError> {
    let link = weft_core::plan::analytic::Link { bandwidth: Measured::exactly(1.0), latency: Measured::exactly(0.0) };
    let constants = Constants {
        note: String::new(),
        start: Default::default(),
        start_spread: 0.0,
        storage: link,
        channel: link,
        worker_second: 0.0,
        channel_second: 0.0,
    };
    let work = Work {
        data: 0.0,
        model: 1.0,
        epochs: 1.0,
        scaling: Default::default(),
        compute: Measured::exactly(1.0),
        rounds: Rounds::Model,
        pattern: Pattern::Leader,
    };
    let mut case = Case { constants, work, workers: 1 };
    what_if.iter().try_for_each(|word| case.ask(word)).map_err(|error| UsageError(error.to_string()))
}

fn constant_sets(
    question: &Question,
    preset: Option<&str>,
    client: &Client,
) -> anyhow::Result<Vec<(String, Constants)>> {
    let named = |name: &str| -> anyhow::Result<(String, Constants)> {
        Ok((name.to_owned(), constants::preset(name).map_err(|error| UsageError(error.to_string()))?))
    };
    match preset {
        Some(LAMBDAML) => constants::PRESETS.iter().map(|name| named(name)).collect(),
        Some(name) => Ok(vec![named(name)?]),
        None => {
            let kept = Calibration::load()?;
            let kept =
                kept.context("this machine is not calibrated: run `weft plan --calibrate`, or give `--preset`")?;
            let channel = question.spec.sync.channel.as_deref().unwrap_or("memory");
            let functions = match question.spec.fan_out {
                weft_core::spec::FanOut::Functions(functions) => f64::from(functions),
                weft_core::spec::FanOut::Epoch => 1.0,
            };
            let second = functions * client.prices()?.function_second(question.sizes.least, 1.0);
            Ok(vec![("this machine".to_owned(), kept.constants(channel, second)?)])
        }
    }
}

/// What there is to do: sizes that the node knows, and an epoch that is measured now.
fn work(question: &Question, client: &Client, out: &Output) -> anyhow::Result<Work> {
    let data = match &question.spec.dataset {
        Some(name) => Some(client.dataset(&name.parse::<Name>()?, None)?),
        None => None,
    };
    out.note("measuring an epoch of one worker …");
    let spec = JobSpec {
        workers: Workers::exactly(1),
        memory: Memory::Bytes(question.sizes.least),
        epochs: TRY_EPOCHS,
        ..Variant::default().over(&question.spec)
    };
    let (job, detail) = ProbeJob::run(spec, client, out)?;
    let model = detail.models.last().context("the try has left no model")?;
    let parameters = client.model(&model.parse()?)?.model.parameters;
    drop(job);
    let seconds: Vec<f64> = counted(&detail).iter().map(|(seconds, _)| *seconds).collect();
    let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
    let variance = seconds.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / seconds.len().max(1) as f64;
    Ok(Work {
        data: data.as_ref().map_or(0.0, |data| data.train.bytes as f64 / MEGABYTE),
        model: parameters as f64 * size_of::<f32>() as f64 / MEGABYTE,
        epochs: question.spec.epochs as f64,
        scaling: Default::default(),
        compute: Measured { value: mean, spread: variance.sqrt() },
        rounds: rounds(&question.spec, data.map(|data| data.train.count)),
        pattern: pattern(&question.spec),
    })
}

/// How often the workers of a job exchange what they have. A trainer that makes its own data has steps instead of samples.
pub fn rounds(spec: &JobSpec, samples: Option<u64>) -> Rounds {
    let batch = spec.global_batch.unwrap_or(spec.batch);
    let samples = samples.unwrap_or(spec.steps * u64::from(batch));
    match (spec.sync.rule.as_deref(), spec.sync.k.or(spec.k)) {
        (Some("admm"), _) => Rounds::Admm { scans: spec.sync.inner_epochs.unwrap_or(10) },
        (Some("statistic-sum"), _) | (_, Some(K::Epochs(_) | K::End)) => Rounds::Model,
        (_, Some(K::Steps(k))) => Rounds::KAverage { samples, batch, k: u32::try_from(k).unwrap_or(u32::MAX) },
        (_, None) => Rounds::Gradient { samples, batch },
    }
}

/// By which way. A merge in the node's memory has as many messages as one by a leader.
pub fn pattern(spec: &JobSpec) -> Pattern {
    match spec.sync.topology.as_deref() {
        Some(word) if word.starts_with("scatter") => Pattern::Scatter,
        _ => Pattern::Leader,
    }
}

/// What a job would have taken by its first tenth, beside what it took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    pub predicted: f64,
    pub measured: f64,
    /// By how much of the measured time the prediction is off.
    pub error: f64,
    /// Whether what workers exchanged was calculated from a calibration, and not taken from the job's first epochs.
    pub is_calibrated: bool,
}

/// Predicts a job that is over from its first epochs, with calibrated links where there are any.
pub fn beside(detail: &JobDetail, calibration: Option<&Calibration>, parameters: Option<u64>) -> Option<Beside> {
    // A job whose workers changed is none that the model knows.
    let epochs = &detail.history;
    let workers = epochs.first()?.workers;
    let is_steady = epochs.iter().all(|epoch| epoch.workers == workers && epoch.reshaped.is_empty());
    if epochs.len() < 2 || !is_steady || epochs.len() as u64 != detail.job.epoch {
        return None;
    }
    let first = &epochs[..epochs.len().div_ceil(10)];
    let count = first.len() as f64;
    let mut stages = Stages::default();
    first.iter().for_each(|epoch| stages.add(&epoch.stages));
    let per_worker = f64::from(workers.max(1)) * count;
    let compute = (stages.data + stages.compute + stages.update + stages.validate) / per_worker;
    let seconds = first.iter().map(|epoch| epoch.seconds).sum::<f64>() / count;
    let exchange = calibration.zip(parameters).and_then(|(kept, parameters)| {
        let channel = detail.spec.sync.channel.as_deref().unwrap_or("memory");
        let link = kept.constants(channel, 0.0).ok()?.channel.rate(0.0);
        let megabytes = parameters as f64 * size_of::<f32>() as f64 / MEGABYTE;
        let samples = first.first().map(|epoch| epoch.samples);
        let rounds = rounds(&detail.spec, samples).per_epoch(workers);
        Some(rounds * pattern(&detail.spec).seconds(workers, megabytes, link))
    });
    // Without constants, an epoch is what the first ones were.
    let epoch = exchange.map_or(seconds, |exchange| compute + exchange);
    let predicted = epoch * epochs.len() as f64;
    let measured: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
    let error = predicted / measured - 1.0;
    (measured > 0.0 && error.is_finite()).then_some(Beside {
        predicted,
        measured,
        error,
        is_calibrated: exchange.is_some(),
    })
}

fn text(answer: &Answer, out: &Output) -> String {
    let Work { data, model, epochs, compute, .. } = &answer.work;
    let mut text = format!(
        "{epochs} epochs of {data:.3} MB, a model of {model:.3} MB, {} ± {} for an epoch of one worker\n\n",
        spoken(compute.value),
        spoken(compute.spread)
    );
    let cells = |it: &Prediction| {
        vec![spoken(it.seconds), format!("{} to {}", spoken(it.least), spoken(it.most)), money(it.cost)]
    };
    let rows: Vec<Vec<String>> = answer
        .predictions
        .iter()
        .map(|row| {
            let stages = &row.predicted.stages;
            let mut cells_of_row = vec![row.constants.clone(), row.predicted.workers.to_string()];
            cells_of_row.extend([stages.start, stages.load, stages.communicate, stages.compute].map(spoken));
            cells_of_row.extend(cells(&row.predicted));
            if let Some(asked) = &row.asked {
                cells_of_row.push(asked.workers.to_string());
                cells_of_row.extend(cells(asked));
            }
            cells_of_row
        })
        .collect();
    let mut header = vec!["CONSTANTS", "WORKERS", "START", "LOAD", "EXCHANGE", "COMPUTE", "TIME", "FROM, TO", "COST"];
    if !answer.what_if.is_empty() {
        header.extend(["WORKERS THEN", "TIME THEN", "FROM, TO", "COST THEN"]);
        text += &format!("then: {}\n\n", out.paint(Style::Bold, &answer.what_if.join(", ")));
    }
    text += &out.table(&header, &rows);
    let best = answer.predictions.iter().map(|row| &row.predicted).min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    best.map_or(text.clone(), |best| format!("{text}\n{}\n", best.why()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::spec::SyncWords;

    #[test]
    fn rounds_follow_from_the_words_of_a_job() {
        let spec = |rule: Option<&str>, k: Option<K>| JobSpec {
            batch: 10,
            sync: SyncWords { rule: rule.map(str::to_owned), k, ..SyncWords::default() },
            ..JobSpec::new("f", None)
        };
        let of = |rule, k| rounds(&spec(rule, k), Some(1_000)).per_epoch(2);
        assert_eq!(of(None, None), 50.0);
        assert_eq!(of(None, Some(K::Steps(5))), 10.0);
        assert_eq!(of(Some("k-average"), Some(K::Epochs(1))), 1.0);
        assert_eq!(of(Some("statistic-sum"), None), 1.0);
        assert_eq!(of(Some("admm"), None), 0.1);
    }

    #[test]
    fn a_question_is_refused_before_anything_is_measured() {
        assert!(check(&["bandwidth=10GB/s".to_owned(), "workers=4".to_owned()]).is_ok());
        assert!(check(&["speed=3".to_owned()]).unwrap_err().to_string().contains("`storage-latency`"));
    }
}
