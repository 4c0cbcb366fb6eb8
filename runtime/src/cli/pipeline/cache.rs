//! What steps came to before, and whether that still holds. Pure but for the two functions that read and write the file.
//!
//! A step's key is the digest of all that it depends on: its kind, its words with what they refer to, and the content of
//! whatever it reads (files, and versions on the node). As outputs name content too, a step whose inputs were made anew and
//! came out the same needs not run again.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::file::Kind;
use crate::digest::Digest;

/// Changes whenever keys mean something else.
const FORMAT: u32 = 1;

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub key: Digest,
    pub outputs: Map<String, Value>,
}

/// What a pipeline's steps came to, by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    format: u32,
    steps: BTreeMap<String, Kept>,
    /// How often each step was asked for again, where it was.
    #[serde(default)]
    again: BTreeMap<String, u64>,
}

impl Default for State {
    fn default() -> Self {
        Self { format: FORMAT, steps: BTreeMap::new(), again: BTreeMap::new() }
    }
}

impl State {
    /// What a step came to if it depended on the same.
    pub fn get(&self, step: &str, key: &Digest) -> Option<&Map<String, Value>> {
        self.steps.get(step).filter(|kept| kept.key == *key).map(|kept| &kept.outputs)
    }

    pub fn put(&mut self, step: &str, key: Digest, outputs: Map<String, Value>) {
        self.steps.insert(step.to_owned(), Kept { key, outputs });
    }

    /// Has a step run again, although nothing has changed.
    pub fn run_again(&mut self, step: &str) {
        *self.again.entry(step.to_owned()).or_default() += 1;
    }

    /// How often that was asked for: part of the step's key.
    pub fn again(&self, step: &str) -> u64 {
        self.again.get(step).copied().unwrap_or(0)
    }

    /// Forgets steps that there are no more.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.steps.retain(|step, _| is_there(step));
        self.again.retain(|step, _| is_there(step));
    }
}

/// What a step reads, by what it is called, and which content that has.
pub type Reads = BTreeMap<String, String>;

/// The key of a step. `again` tells apart runs that somebody has asked for.
pub fn key(kind: Kind, words: &Map<String, Value>, reads: &Reads, again: u64) -> Digest {
    let all = json!({ "format": FORMAT, "kind": kind.word(), "words": words, "reads": reads, "again": again });
    // Objects are sorted by their keys, so the same words in another order are the same.
    Digest::of(all.to_string().as_bytes())
}

/// The file that remembers what steps came to, held by one run at a time.
pub struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Takes hold of the state of a pipeline; it is let go when this is dropped or the process ends, however it does.
    pub fn open(folder: &Path, name: &str) -> anyhow::Result<(Self, State)> {
        let folder = folder.join(".weft");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        let path = folder.join(format!("{name}.pipeline.json"));
        let lock_path = path.with_extension("lock");
        let lock = File::options().create(true).append(true).open(&lock_path);
        let lock = lock.with_context(|| format!("cannot open `{}`", lock_path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => anyhow::bail!("pipeline `{name}` is running already"),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock `{}`", lock_path.display()));
            }
        }
        let state = match File::open(&path) {
            Ok(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).with_context(|| format!("cannot read `{}`", path.display()))?;
                // What another version has written says nothing to this one: all steps run again, or find what they made.
                serde_json::from_str(&text).ok().filter(|state: &State| state.format == FORMAT).unwrap_or_default()
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        Ok((Self { path, _lock: lock }, state))
    }

    /// Writes the state: all of it, or what was there before.
    pub fn write(&self, state: &State) -> anyhow::Result<()> {
        let failed = || format!("cannot write `{}`", self.path.display());
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut staged = tempfile::NamedTempFile::new_in(folder).with_context(failed)?;
        staged.write_all(&serde_json::to_vec_pretty(state)?).with_context(failed)?;
        staged.as_file().sync_all().with_context(failed)?;
        staged.persist(&self.path).with_context(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_key_depends_on_all_that_a_step_depends_on_and_on_nothing_else() {
        let reads = Reads::from([("file a.csv".to_owned(), "sha256:1".to_owned())]);
        let one = key(Kind::Train, &words(json!({"a": 1, "b": {"x": 1, "y": 2}})), &reads, 0);
        assert_eq!(one, key(Kind::Train, &words(json!({"b": {"y": 2, "x": 1}, "a": 1})), &reads, 0));
        let others = [
            key(Kind::Train, &words(json!({"a": 2, "b": {"x": 1, "y": 2}})), &reads, 0),
            key(Kind::Push, &words(json!({"a": 1, "b": {"x": 1, "y": 2}})), &reads, 0),
            key(Kind::Train, &words(json!({"a": 1, "b": {"x": 1, "y": 2}})), &Reads::new(), 0),
            key(Kind::Train, &words(json!({"a": 1, "b": {"x": 1, "y": 2}})), &reads, 1),
        ];
        assert!(others.iter().all(|other| *other != one));
    }

    #[test]
    fn what_was_kept_holds_for_the_same_key_only() {
        let (mut state, outputs) = (State::default(), words(json!({"model": "m"})));
        let (one, other) = (Digest::of(b"1"), Digest::of(b"2"));
        state.put("fit", one, outputs.clone());
        assert_eq!((state.get("fit", &one), state.get("fit", &other)), (Some(&outputs), None));
        state.retain(|step| step != "fit");
        assert_eq!(state.get("fit", &one), None);
    }

    #[test]
    fn a_state_is_one_runs_at_a_time_and_outlives_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, mut state) = StateFile::open(folder.path(), "cars").unwrap();
        let second = StateFile::open(folder.path(), "cars").err().unwrap().to_string();
        assert!(second.contains("running already"), "{second}");
        state.put("fit", Digest::of(b"1"), words(json!({"model": "m"})));
        file.write(&state).unwrap();
        drop(file);
        assert_eq!(StateFile::open(folder.path(), "cars").unwrap().1, state);
        std::fs::write(folder.path().join(".weft/cars.pipeline.json"), "{\"format\": 0, \"steps\": {}}").unwrap();
        assert_eq!(StateFile::open(folder.path(), "cars").unwrap().1, State::default());
    }
}
