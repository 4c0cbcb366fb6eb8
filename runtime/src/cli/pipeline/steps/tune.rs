//! `tune`: a study, of which the best trial is what it comes to.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

use super::super::cache::Reads;
use super::train::{deploy_function, reads_of};
use super::{Doing, found};
use crate::cli::client::{Client, ClientError};
use crate::cli::logs::connect_again;
use crate::cli::output::harmless;
use crate::digest::Digest;
use crate::names::Name;

/// How soon it is looked again how far a study is, and how soon at most where the node is away.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Words of a trial's job that are its alone.
const OWN: [&str; 3] = ["name", "until", "follow"];

/// The words of its trials' job, as a step of their own has them.
fn trial<'a>(doing: &Doing<'a>) -> anyhow::Result<Doing<'a>> {
    let words = doing.words.get("job").and_then(Value::as_object).cloned();
    let words = words.context("it has no `job`: a table of what every trial is")?;
    Ok(Doing { name: doing.name, kind: doing.kind, words, place: doing.place })
}

pub fn reads(doing: &mut Doing<'_>) -> anyhow::Result<Reads> {
    ensure!(!doing.words.contains_key("name"), "`name`: a step's study is named after the step: leave it out");
    let mut trial = trial(doing)?;
    deploy_function(&mut trial)?;
    let reads = reads_of(&trial)?;
    doing.words.insert("job".to_owned(), Value::Object(trial.words));
    Ok(reads)
}

/// Its words without names of things whose content it reads.
pub fn key_words(mut words: Map<String, Value>) -> Map<String, Value> {
    if let Some(job) = words.get_mut("job").and_then(Value::as_object_mut) {
        job.retain(|word, _| word != "dataset" && word != "init_from");
    }
    words
}

fn path(name: &Name) -> String {
    format!("/v1/tunes/{name}")
}

pub fn run(doing: &Doing<'_>, key: &Digest) -> anyhow::Result<Map<String, Value>> {
    let (client, out, name) = (doing.place.client, doing.place.out, doing.thing(key, 1)?);
    let mut spec = doing.words.clone();
    spec.insert("name".to_owned(), json!(name));
    // The same step with the same words tries the same.
    spec.entry("seed").or_insert_with(|| doing.seed().into());
    let begun = found(client.value(&path(&name)))?;
    if begun.is_none() {
        client.send_value("/v1/tunes", &Value::Object(spec), &format!("pipeline:{key}"))?;
    } else if begun.as_ref().is_some_and(|study| study["tune"]["state"] == "stopped") {
        out.note(format_args!("study `{name}` was stopped: going on with it"));
        client.send_value(&format!("{}/resume", path(&name)), &json!({}), "resume")?;
    }
    let study = to_its_end(&name, doing)?;
    let tune = &study["tune"];
    if tune["state"] != "done" {
        let reason = harmless(tune["reason"].as_str().unwrap_or_default());
        bail!("study `{name}` is {}: {reason}", tune["state"].as_str().unwrap_or("over"));
    }
    outputs(&name, tune, client)
}

fn to_its_end(name: &Name, doing: &Doing<'_>) -> anyhow::Result<Value> {
    let (client, out) = (doing.place.client, doing.place.out);
    let mut told = String::new();
    loop {
        let away = |error: &ClientError| out.note(format_args!("{error}; trying again"));
        let study = connect_again(LOOK_AGAIN, away, || client.value(&path(name)))?;
        let tune = &study["tune"];
        if tune["state"] != "running" {
            return Ok(study);
        }
        let (counts, best) = (&tune["counts"], tune["best"]["value"].as_f64());
        let best = best.map_or_else(String::new, |best| format!(", the best {best:.4}"));
        let text = format!("{} of {} trials done{best}", counts["done"], tune["trials"]);
        if text != told {
            out.note(format_args!("study `{name}`: {text}"));
            told = text;
        }
    }
}

/// What the best trial is, and the words of its job.
fn outputs(name: &Name, tune: &Value, client: &Client) -> anyhow::Result<Map<String, Value>> {
    let best = &tune["best"];
    let job = best["job"].as_str().with_context(|| format!("study `{name}` has no best trial"))?;
    let mut words = client.value(&format!("/v1/jobs/{job}"))?["spec"].as_object().cloned().unwrap_or_default();
    words.retain(|word, _| !OWN.contains(&word.as_str()));
    let outputs = json!({
        "tune": name, "trial": best["trial"], "job": job, "model": best["model"], "value": best["value"],
        "point": best["point"], "words": words,
    });
    Ok(outputs.as_object().cloned().unwrap_or_default())
}
