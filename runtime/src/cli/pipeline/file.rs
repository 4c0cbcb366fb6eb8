//! A pipeline's file: steps, each with its kind, what it needs and its words. Pure: text in, steps or an error with the
//! step's name and line out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::reference::{self, BadReference, Reference};
use crate::names::is_name;

/// Steps of one pipeline.
pub const MAX_STEPS: usize = 256;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Preprocess,
    Tune,
    Train,
    Evaluate,
    Push,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Preprocess, Self::Tune, Self::Train, Self::Evaluate, Self::Push];

    pub fn word(self) -> &'static str {
        match self {
            Self::Preprocess => "preprocess",
            Self::Tune => "tune",
            Self::Train => "train",
            Self::Evaluate => "evaluate",
            Self::Push => "push",
        }
    }

    /// What later steps may ask of it.
    pub fn outputs(self) -> &'static [&'static str] {
        match self {
            Self::Preprocess => &["dataset", "version", "train", "test"],
            Self::Tune => &["tune", "trial", "job", "model", "value", "point", "words"],
            Self::Train => &["job", "model", "digest", "accuracy", "loss"],
            Self::Evaluate => &["accuracy", "loss", "samples"],
            Self::Push => &["file", "digest", "bytes"],
        }
    }
}

/// One step, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub name: String,
    /// Counted from 1.
    pub line: usize,
    pub kind: Kind,
    /// Steps that come before it: those that it names, and those that its words refer to.
    pub needs: Vec<String>,
    /// Its words, with references as they were written.
    pub words: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub name: Option<String>,
    /// In the order of the file.
    pub steps: Vec<Step>,
}

/// A file that is no pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFile {
    /// With the line in it.
    #[error("{0}")]
    Syntax(String),
    #[error("it has no steps: begin one with `[steps.NAME]`")]
    NoSteps,
    #[error("it has {0} steps, more than {MAX_STEPS}")]
    TooManySteps(usize),
    #[error("`name`: `{0}` is not a name: use lower-case letters, digits and inner hyphens")]
    Name(String),
    #[error("line {line}: step `{step}`: {problem}")]
    Step { step: String, line: usize, problem: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Option<String>,
    #[serde(default)]
    steps: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, toml::Value>>,
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
}

/// Reads a pipeline's file.
pub fn read(text: &str) -> Result<Pipeline, BadFile> {
    let written: Written = toml::from_str(text).map_err(|error| BadFile::Syntax(error.to_string()))?;
    if let Some(name) = written.name.as_ref().filter(|name| !is_name(name)) {
        return Err(BadFile::Name(name.clone()));
    }
    let mut steps = Vec::new();
    for (name, words) in written.steps {
        steps.push(step(text, &name, words)?);
    }
    match steps.len() {
        0 => return Err(BadFile::NoSteps),
        count if count > MAX_STEPS => return Err(BadFile::TooManySteps(count)),
        _ => {}
    }
    steps.sort_by_key(|step| step.line);
    Ok(Pipeline { name: written.name, steps })
}

fn step(text: &str, name: &Spanned<String>, words: BTreeMap<Spanned<String>, toml::Value>) -> Result<Step, BadFile> {
    let (line, name) = (line_of(text, name.span().start), name.get_ref().clone());
    let wrong = |line, problem: String| BadFile::Step { step: name.clone(), line, problem };
    if !is_name(&name) {
        return Err(wrong(line, "its name must be lower-case letters, digits and inner hyphens".to_owned()));
    }
    let (mut kind, mut needs, mut plain) = (None, Vec::<String>::new(), Map::new());
    for (word, value) in words {
        let line = line_of(text, word.span().start);
        match (word.get_ref().as_str(), value) {
            ("kind", toml::Value::String(text)) => {
                kind = Kind::ALL.into_iter().find(|kind| kind.word() == text);
                if kind.is_none() {
                    let all = Kind::ALL.map(|kind| format!("`{}`", kind.word())).join(", ");
                    return Err(wrong(line, format!("there is no kind `{}`: there are {all}", text.escape_debug())));
                }
            }
            ("kind", _) => return Err(wrong(line, "`kind` must be a text".to_owned())),
            ("needs", value) => {
                let names: Result<Vec<String>, _> = value.try_into();
                let names = names.map_err(|_| wrong(line, "`needs` must be a list of steps' names".to_owned()))?;
                needs.extend(names);
            }
            (word, value) => {
                let value = json(value).map_err(|problem| wrong(line, format!("`{word}`: {problem}")))?;
                for reference in reference::all(&value).map_err(|BadReference(text)| {
                    wrong(line, format!("`{word}`: `{text}` is no reference: write `${{STEP.OUTPUT}}`"))
                })? {
                    let Reference { step, .. } = reference;
                    needs.push(step);
                }
                plain.insert(word.to_owned(), value);
            }
        }
    }
    needs.sort();
    needs.dedup();
    let kind = kind.ok_or_else(|| wrong(line, "it has no `kind`".to_owned()))?;
    Ok(Step { name, line, kind, needs, words: plain })
}

/// The same as JSON has it, in which words of jobs and data sets are read.
fn json(value: toml::Value) -> Result<Value, String> {
    if holds_date(&value) {
        return Err("a date is nothing that a step takes: write it as a text".to_owned());
    }
    serde_json::to_value(value).map_err(|error| error.to_string())
}

fn holds_date(value: &toml::Value) -> bool {
    match value {
        toml::Value::Datetime(_) => true,
        toml::Value::Array(values) => values.iter().any(holds_date),
        toml::Value::Table(table) => table.values().any(holds_date),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
name = "cars"

[steps.data]
kind = "preprocess"
train = ["cars.csv"]

[steps.fit]
kind = "train"
needs = ["gate"]
dataset = "${data.dataset}"
params = { hidden = 8 }

[steps.gate]
kind = "evaluate"
job = "old"
"#;

    fn problem(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn steps_need_what_they_name_and_what_they_refer_to() {
        let pipeline = read(FILE).unwrap();
        let steps: Vec<(&str, usize)> = pipeline.steps.iter().map(|step| (step.name.as_str(), step.line)).collect();
        assert_eq!(steps, [("data", 4), ("fit", 8), ("gate", 14)]);
        assert_eq!(pipeline.steps[1].needs, ["data", "gate"]);
        assert_eq!(pipeline.steps[1].words["params"], serde_json::json!({"hidden": 8}));
        assert_eq!(pipeline.name.as_deref(), Some("cars"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_step_and_line() {
        assert_eq!(
            problem("[steps.a]\nkind = \"tain\""),
            "line 2: step `a`: there is no kind `tain`: there are `preprocess`, `tune`, `train`, `evaluate`, `push`"
        );
        assert_eq!(problem("\n[steps.a]\nepochs = 2"), "line 2: step `a`: it has no `kind`");
        assert_eq!(
            problem("[steps.a]\nkind = \"push\"\nto = \"x\"\nmodel = \"${b}\""),
            "line 4: step `a`: `model`: `${b}` is no reference: write `${STEP.OUTPUT}`"
        );
        assert!(problem("[steps.a]\nkind = \"push\"\nneeds = 3").starts_with("line 3: step `a`: `needs`"));
        assert!(problem("[steps.A]\nkind = \"push\"").starts_with("line 1: step `A`: its name"));
        assert!(
            problem("[steps.a]\nkind = \"train\"\nsince = 2026-01-01").starts_with("line 3: step `a`: `since`: a date")
        );
    }

    #[test]
    fn a_file_that_is_no_pipeline_is_refused() {
        assert_eq!(read(""), Err(BadFile::NoSteps));
        assert!(problem("name = \"No Name\"").contains("No Name"));
        assert!(problem("[steps.a]\nkind = ").contains("line 2"));
        assert!(problem("stps = 1").contains("stps"));
        let many: String = (0..=MAX_STEPS).map(|step| format!("[steps.s{step}]\nkind = \"push\"\n")).collect();
        assert_eq!(read(&many), Err(BadFile::TooManySteps(MAX_STEPS + 1)));
    }
}
