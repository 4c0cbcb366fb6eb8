//! What each kind of step reads, does, and leaves.
//!
//! A step can be killed at any moment and done again: what it makes on the node is named after its key, so whoever does it
//! again finds it there, finished or under way, instead of making it twice.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::cache::Reads;
use super::file::Kind;
use crate::cli::client::{Client, ClientError};
use crate::cli::output::Output;
use crate::digest::Digest;
use crate::names::{MAX_NAME, Name};

mod evaluate;
mod preprocess;
mod push;
mod train;
mod tune;

/// Where a step is done.
pub struct Place<'a> {
    pub client: &'a Client,
    pub out: &'a Output,
    /// The folder that paths are relative to: that of the pipeline's file.
    pub folder: PathBuf,
    pub pipeline: String,
}

/// A step that is about to be done, or found done.
pub struct Doing<'a> {
    pub name: &'a str,
    pub kind: Kind,
    /// Without references.
    pub words: Map<String, Value>,
    pub place: &'a Place<'a>,
}

impl Doing<'_> {
    /// What it reads, and which content that has now.
    pub fn reads(&mut self) -> anyhow::Result<Reads> {
        match self.kind {
            Kind::Preprocess => preprocess::reads(self),
            Kind::Tune => tune::reads(self),
            Kind::Train => train::reads(self),
            Kind::Evaluate => evaluate::reads(self),
            Kind::Push => push::reads(self),
        }
    }

    /// Whether what it has left is still there.
    pub fn holds(&self, outputs: &Map<String, Value>) -> anyhow::Result<bool> {
        match self.kind {
            Kind::Preprocess => preprocess::holds(self, outputs),
            Kind::Train => train::holds(self, outputs),
            Kind::Push => push::holds(self, outputs),
            // Numbers and words, which nobody can take away.
            Kind::Tune | Kind::Evaluate => Ok(true),
        }
    }

    /// Its words without names of things on the node, whose content is among what it reads: another name for the same is
    /// no change.
    pub fn key_words(&self) -> Map<String, Value> {
        let names: &[&str] = match self.kind {
            Kind::Preprocess => &[],
            Kind::Tune => return tune::key_words(self.words.clone()),
            Kind::Train => &["dataset", "init_from"],
            Kind::Evaluate => &["job"],
            Kind::Push => &["model"],
        };
        let mut words = self.words.clone();
        words.retain(|word, _| !names.contains(&word.as_str()));
        words
    }

    pub fn run(&self, key: &Digest) -> anyhow::Result<Map<String, Value>> {
        match self.kind {
            Kind::Preprocess => preprocess::run(self, key),
            Kind::Tune => tune::run(self, key),
            Kind::Train => train::run(self, key),
            Kind::Evaluate => evaluate::run(self),
            Kind::Push => push::run(self),
        }
    }

    /// A number that follows from its name, and is exact in JSON.
    fn seed(&self) -> u64 {
        let digest = Digest::of(self.name.as_bytes());
        let bytes = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(bytes) >> 11
    }

    /// What something on the node is called that this step makes.
    fn thing(&self, key: &Digest, attempt: u32) -> anyhow::Result<Name> {
        let digits: String = key.hex().chars().take(10).collect();
        let end = if attempt == 1 { digits } else { format!("{digits}-{attempt}") };
        let stem: String = format!("{}-{}", self.place.pipeline, self.name);
        let stem: String = stem.chars().take(MAX_NAME - end.len() - 1).collect();
        Ok(format!("{}-{end}", stem.trim_end_matches('-')).parse()?)
    }

    fn text(&self, word: &str) -> anyhow::Result<Option<&str>> {
        match self.words.get(word) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => anyhow::bail!("`{word}` must be a text"),
        }
    }

    fn name_of(&self, word: &str) -> anyhow::Result<Name> {
        let text = self.text(word)?.ok_or_else(|| anyhow::anyhow!("it has no `{word}`"))?;
        Ok(text.parse()?)
    }
}

/// Text of an output.
fn output<'a>(outputs: &'a Map<String, Value>, word: &str) -> &'a str {
    outputs.get(word).and_then(Value::as_str).unwrap_or_default()
}

/// What a node has, or nothing where it says that there is no such thing.
fn found<T>(asked: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match asked {
        Ok(thing) => Ok(Some(thing)),
        Err(ClientError::Problem { problem, .. }) if problem.status == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
