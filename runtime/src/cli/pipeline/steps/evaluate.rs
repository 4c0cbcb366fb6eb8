//! `evaluate`: how good a job's model is, on samples of one's own or by the job's own validation; and whether that is enough.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::super::cache::Reads;
use super::super::samples::Samples;
use super::Doing;
use crate::cli::dataset::leave;
use crate::cli::infer;
use crate::train::files::LocalDataSet;

/// Words that are not of the samples.
const OWN: [&str; 3] = ["job", "at_least", "at_most"];

fn samples(doing: &Doing<'_>) -> anyhow::Result<Samples> {
    let mut words = doing.words.clone();
    OWN.iter().for_each(|word| drop(words.remove(*word)));
    Samples::read(words, &doing.place.folder)
}

fn bounds(doing: &Doing<'_>, word: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    let Some(bounds) = doing.words.get(word) else { return Ok(BTreeMap::new()) };
    serde_json::from_value(bounds.clone()).with_context(|| format!("`{word}` must be a table of numbers"))
}

pub fn reads(doing: &Doing<'_>) -> anyhow::Result<Reads> {
    let job = doing.name_of("job")?;
    for word in ["at_least", "at_most"] {
        bounds(doing, word)?;
    }
    let mut reads = samples(doing)?.reads()?;
    let detail = doing.place.client.job(&job)?;
    for (number, model) in detail.models.iter().enumerate() {
        reads.insert(format!("model {number}"), doing.place.client.model(&model.parse()?)?.model.digest);
    }
    Ok(reads)
}

pub fn run(doing: &Doing<'_>) -> anyhow::Result<Map<String, Value>> {
    let (job, client, samples) = (doing.name_of("job")?, doing.place.client, samples(doing)?);
    let (count, metrics) = match samples.has_any() {
        true => {
            let data = LocalDataSet::make(&samples.spec(&leave)?)?;
            infer::measure(&job, "samples", data, client)?
        }
        false => {
            let detail = client.job(&job)?;
            let validated = detail.history.iter().rev().find(|epoch| !epoch.validation.is_empty());
            let validated = validated.with_context(|| {
                format!(
                    "job `{job}` has validated nothing: name samples with `train`, `test`, `synthetic` or `shipped`"
                )
            })?;
            (0, validated.validation.clone())
        }
    };
    let enough = |word: &str, holds: fn(f64, f64) -> bool| -> anyhow::Result<()> {
        for (metric, bound) in bounds(doing, word)? {
            let words = word.replace('_', " ");
            match metrics.get(&metric) {
                Some(&value) if holds(value, bound) => {}
                Some(value) => bail!("`{metric}` is {value:.4}, and must be {words} {bound}"),
                None => bail!("`{metric}` was not measured, and must be {words} {bound}"),
            }
        }
        Ok(())
    };
    enough("at_least", |value, bound| value >= bound)?;
    enough("at_most", |value, bound| value <= bound)?;
    let mut outputs: Map<String, Value> = metrics.into_iter().map(|(name, value)| (name, value.into())).collect();
    if count > 0 {
        outputs.insert("samples".to_owned(), count.into());
    }
    Ok(outputs)
}
