//! `weft train`: submit a training job, and follow it to its end.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::de::DeserializeOwned;
use weft_core::spec::Follow;

use super::client::{Client, ClientError};
use super::output::Output;
use super::{deploy, upload};
use crate::api::types::JobView;
use crate::digest::{Digest, hex};
use crate::job::JobSpec;
use crate::names::{MAX_NAME, Name};

mod follow;
mod options;
pub mod screen;
pub mod watch;

pub use options::{TrainingOptions, name_value};
pub use screen::seconds;

/// Times that a submission is sent before giving up, where the connection breaks. Its key makes it one job all the same.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Train a deployed function on a node, with as many workers as you like.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// A deployed trainer's name; or, with a `/` or `.wasm` in it, its crate or component, which is deployed first
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// The data set on the node; left out for a trainer that makes its own data
    #[arg(long, value_name = "NAME")]
    dataset: Option<Name>,
    /// What the job and its model are called [default: a name is made up]
    #[arg(long)]
    name: Option<Name>,
    /// The model to start from: one on the node, or a .safetensors file, which is sent first
    #[arg(long, value_name = "MODEL|FILE")]
    init_from: Option<String>,
    /// Of first weights, order of samples, and everything else that is random [default: made up]
    #[arg(long)]
    seed: Option<u64>,
    /// When its epochs are done, wait for new versions of the data set, and train on each: on its new samples, and on a
    /// share of the old ones. All of `replay=SHARE,epochs=N,versions=N,idle=SPAN` may be left out
    #[arg(long, value_name = "WORDS", num_args = 0..=1, require_equals = true, default_missing_value = "",
        value_parser = follow::follow)]
    follow: Option<Follow>,
    /// Do not follow the job: say its name and leave it running
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    options: TrainingOptions,
}

/// One of the words that the API takes.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl TrainArgs {
    /// The job that the flags ask for; the function and the model to start from are as they were given.
    fn spec(self) -> JobSpec {
        let base = JobSpec::new(self.function, self.dataset.map(Into::into));
        let name = self.name.map(Into::into);
        self.options.over(JobSpec { name, seed: self.seed, init_from: self.init_from, follow: self.follow, ..base })
    }
}

pub fn run(args: TrainArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detach = args.detach;
    let mut spec = args.spec();
    if is_path(&spec.function, "wasm") {
        let (deployed, sentence) = deploy::deploy(Path::new(&spec.function), None, client, out)?;
        out.note(sentence);
        spec.function = deployed.function.name;
    }
    let mut sent = None;
    if let Some(file) = spec.init_from.take_if(|model| is_path(model, "safetensors")) {
        let model = send_model(Path::new(&file), client, out)?;
        spec.init_from = Some(model.name.to_string());
        sent = Some(model.name).filter(|_| model.is_new);
    }
    let job = submit(&spec, client, out);
    // Only what was refused for sure: of a lost connection nobody knows whether a job needs the model now.
    if let (Err(ClientError::Problem { .. }), Some(model)) = (&job, &sent) {
        match client.delete_model(model) {
            Ok(()) => out.note(format_args!("the job was refused: deleted model `{model}` again")),
            Err(error) => out.note(format_args!("the job was refused, and model `{model}` was not deleted: {error}")),
        }
    }
    let job = job.map_err(|error| match &error {
        ClientError::Problem { problem, .. } if problem.status == 404 && Path::new(&spec.function).exists() => {
            anyhow::Error::from(error).context(format!("to deploy it first, write `./{}`", spec.function))
        }
        _ => error.into(),
    })?;
    if detach {
        let JobView { name, state, .. } = &job;
        let sentence = format!(
            "job `{name}` is {}; `weft job watch {name}` follows it, `weft job stop {name}` stops it",
            state.word()
        );
        return out.done(&job, sentence);
    }
    watch::to_its_end(&job.name.parse()?, client, out)
}

/// Whether this is meant as a path, not as a name on the node.
pub(super) fn is_path(text: &str, extension: &str) -> bool {
    text.contains(['/', '\\']) || text == "." || Path::new(text).extension().is_some_and(|end| end == extension)
}

/// A file on the node, as a model.
struct SentModel {
    name: Name,
    /// Whether it was not there before.
    is_new: bool,
}

/// Keeps a file as a model whose name says which bytes it has.
fn send_model(file: &Path, client: &Client, out: &Output) -> anyhow::Result<SentModel> {
    let digest = Digest::of_file(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let name = model_name(file, &digest)?;
    match client.model(&name) {
        Ok(kept) if kept.model.digest == digest.to_string() => return Ok(SentModel { name, is_new: false }),
        Ok(_) | Err(ClientError::Problem { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let model = client.create_model(&name, &upload::file(file, client, out)?)?;
    out.note(format_args!("sent `{}` as model `{}`", file.display(), model.name));
    Ok(SentModel { name, is_new: true })
}

fn model_name(file: &Path, digest: &Digest) -> anyhow::Result<Name> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let end = digest.hex();
    let end = end.get(..12).unwrap_or(&end);
    let room = MAX_NAME - end.len() - 1;
    let plain = plain.get(..room.min(plain.len())).unwrap_or_default().trim_matches('-');
    Ok(if plain.is_empty() { format!("model-{end}") } else { format!("{plain}-{end}") }.parse()?)
}

/// Sends a job; again where the connection broke and nobody knows whether it arrived.
fn submit(spec: &JobSpec, client: &Client, out: &Output) -> Result<JobView, ClientError> {
    let mut random = [0; 16];
    let key = getrandom::fill(&mut random).ok().map(|()| hex(&random));
    submit_as(spec, key.as_deref(), client, out)
}

/// The same, under a key: whoever sends the same job with the same key gets that job.
pub(super) fn submit_as(
    spec: &JobSpec,
    key: Option<&str>,
    client: &Client,
    out: &Output,
) -> Result<JobView, ClientError> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        let error = match client.submit_job(spec, key) {
            Ok(job) => return Ok(job),
            Err(error) => error,
        };
        let broke = match &error {
            ClientError::Cut(_) | ClientError::HungUp { .. } | ClientError::Timeout { .. } => true,
            // Nobody was there at first; later it may be a node that starts again.
            ClientError::Unreachable { .. } => attempt > 1,
            _ => false,
        };
        if !broke || key.is_none() || attempt == ATTEMPTS {
            return Err(error);
        }
        out.note(format_args!("{error}; sending it again"));
        std::thread::sleep(pause);
        pause *= 2;
    }
    Err(ClientError::Cut("it was sent too often".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_names() {
        for path in ["./lenet", "functions/lenet", ".", "lenet.wasm", "/tmp/lenet"] {
            assert!(is_path(path, "wasm"), "{path}");
        }
        assert!(!is_path("lenet", "wasm"));
    }

    #[test]
    fn a_file_becomes_a_model_whose_name_says_its_bytes() {
        let digest = Digest::of(b"");
        let name = |file: &str| model_name(Path::new(file), &digest).unwrap().to_string();
        assert_eq!(name("a/My_model.v2.safetensors"), "my-model-v2-e3b0c44298fc");
        assert_eq!(name("é.safetensors"), "model-e3b0c44298fc");
        assert_eq!(name(&format!("{}.safetensors", "x".repeat(90))).len(), MAX_NAME);
    }
}
