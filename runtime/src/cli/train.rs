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
mod planning;
pub mod screen;
pub mod watch;

pub use options::{LearningOptions, TrainingOptions, finite, name_value};
pub use planning::PlanArgs;
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
    #[command(flatten)]
    plan: PlanArgs,
}

/// One of the words that the API takes.
pub fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl TrainArgs {
    /// The job that the flags ask for; the function and the model to start from are as they were given.
    pub fn spec(self) -> JobSpec {
        let base = JobSpec::new(self.function, self.dataset.map(Into::into));
        let name = self.name.map(Into::into);
        let (seed, init_from, follow) = (self.seed, self.init_from, self.follow);
        self.plan.over(self.options.over(JobSpec { name, seed, init_from, follow, ..base }))
    }
}

pub fn run(args: TrainArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let detach = args.detach;
    let mut spec = args.spec();
    let prepared = Prepared::new(&mut spec, client, out)?;
    let job = prepared.submit(&spec, client, out, |key| client.submit_job(&spec, key))?;
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

/// The name of a function; one that is given as a path is deployed first.
pub fn deployed(function: String, client: &Client, out: &Output) -> anyhow::Result<String> {
    if !is_path(&function, "wasm") {
        return Ok(function);
    }
    let (deployed, sentence) = deploy::deploy(Path::new(&function), None, client, out)?;
    out.note(sentence);
    Ok(deployed.function.name)
}

/// What had to be on the node before a job could be asked for.
pub struct Prepared {
    /// The model that was sent for it, and that nothing else has yet.
    sent: Option<Name>,
}

impl Prepared {
    /// Deploys the function and sends the model, where they are files; the job then has their names.
    pub fn new(spec: &mut JobSpec, client: &Client, out: &Output) -> anyhow::Result<Self> {
        spec.function = deployed(std::mem::take(&mut spec.function), client, out)?;
        let mut sent = None;
        if let Some(file) = spec.init_from.take_if(|model| is_path(model, "safetensors")) {
            let model = send_model(Path::new(&file), client, out)?;
            spec.init_from = Some(model.name.to_string());
            sent = Some(model.name).filter(|_| model.is_new);
        }
        Ok(Self { sent })
    }

    /// Sends what is asked for, the job or what is made of it. What was refused leaves no model behind.
    pub fn submit<T>(
        self,
        spec: &JobSpec,
        client: &Client,
        out: &Output,
        send: impl Fn(Option<&str>) -> Result<T, ClientError>,
    ) -> anyhow::Result<T> {
        let answer = submit(out, send);
        // Only what was refused for sure: of a lost connection nobody knows whether a job needs the model now.
        if let (Err(ClientError::Problem { .. }), Some(model)) = (&answer, &self.sent) {
            match client.delete_model(model) {
                Ok(()) => out.note(format_args!("it was refused: deleted model `{model}` again")),
                Err(error) => out.note(format_args!("it was refused, and model `{model}` was not deleted: {error}")),
            }
        }
        answer.map_err(|error| match &error {
            ClientError::Problem { problem, .. } if problem.status == 404 && Path::new(&spec.function).exists() => {
                anyhow::Error::from(error).context(format!("to deploy it first, write `./{}`", spec.function))
            }
            _ => error.into(),
        })
    }
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

/// Sends with a key; again where the connection broke and nobody knows whether it arrived.
pub fn submit<T>(out: &Output, send: impl Fn(Option<&str>) -> Result<T, ClientError>) -> Result<T, ClientError> {
    let mut random = [0; 16];
    let key = getrandom::fill(&mut random).ok().map(|()| hex(&random));
    submit_as(key.as_deref(), out, send)
}

/// The same, under a key: whoever sends the same with the same key gets what there is.
pub(super) fn submit_as<T>(
    key: Option<&str>,
    out: &Output,
    send: impl Fn(Option<&str>) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        let error = match send(key) {
            Ok(answer) => return Ok(answer),
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
