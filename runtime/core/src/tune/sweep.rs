//! Search files: what to search and how, in the form of sweeps of Weights & Biases, which many people have.
//!
//! ```yaml
//! method: bayes
//! metric: {name: accuracy, goal: maximize}
//! parameters:
//!   lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
//!   batch: {values: [32, 64, 128]}
//! early_terminate: {type: hyperband, min_iter: 1, eta: 3}
//! run_cap: 40
//! ```
//!
//! Every key is either understood, known to be about something else and named as such, or an error with its line: a word
//! that is passed over in silence would be a search that nobody asked for. Beyond the form of others there is `if`, a
//! condition as in `--search`, and the names of our samplers and pruners.

use super::prune::Pruner;
use super::sampler::SamplerKind;
use super::space::Parameter;
use super::study::Direction;

mod parameters;
mod yaml;

use yaml::{Content, Entry, Node};

/// Something in a search file that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}{why}", if key.is_empty() { String::new() } else { format!("`{key}`: ") })]
pub struct SweepError {
    /// Counted from one.
    pub line: usize,
    /// The way to it from the outside, as in `parameters.lr.max`; empty where it is none.
    pub key: String,
    pub why: String,
}

impl SweepError {
    fn new(line: usize, key: &str, why: &str) -> Self {
        Self { line, key: key.to_owned(), why: why.to_owned() }
    }
}

/// What a search file asks for. What it does not say is left to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sweep {
    pub parameters: Vec<Parameter>,
    pub sampler: Option<SamplerKind>,
    pub pruner: Option<Pruner>,
    pub goal: Option<String>,
    pub direction: Option<Direction>,
    pub target: Option<f64>,
    pub trials: Option<u32>,
    /// After how many epochs a trial can be paused or stopped at the earliest.
    pub least_epochs: Option<u32>,
    /// What a trial trains for if nothing stops it.
    pub epochs: Option<u32>,
    /// Keys that are about something else: how others start programs, and where they show them.
    pub ignored: Vec<String>,
}

/// About where and how a sweep of theirs runs, not about what is searched.
const FOREIGN: [&str; 8] = ["program", "command", "project", "entity", "name", "description", "imports", "controller"];

impl Sweep {
    /// Reads a file.
    pub fn read(text: &str) -> Result<Self, SweepError> {
        let root = yaml::read(text)?;
        let mut sweep = Self::default();
        for entry in map(&root, "")? {
            let key = entry.key.as_str();
            match key {
                "method" => sweep.sampler = Some(sampler(entry)?),
                "metric" => sweep.metric(entry)?,
                "parameters" => {
                    for parameter in map(&entry.node, key)? {
                        sweep.parameters.push(parameters::read(parameter)?);
                    }
                }
                "early_terminate" => sweep.early_terminate(entry)?,
                "run_cap" => sweep.trials = Some(count(entry, key)?),
                _ if FOREIGN.contains(&key) => sweep.ignored.push(key.to_owned()),
                _ => {
                    let known = "`method`, `metric`, `parameters`, `early_terminate` and `run_cap`";
                    return Err(SweepError::new(entry.line, key, &format!("there is no such key; there are {known}")));
                }
            }
        }
        if sweep.parameters.is_empty() {
            return Err(SweepError::new(
                root.line,
                "parameters",
                "there is nothing to search: name at least one parameter",
            ));
        }
        Ok(sweep)
    }

    fn metric(&mut self, entry: &Entry) -> Result<(), SweepError> {
        for part in map(&entry.node, "metric")? {
            let key = format!("metric.{}", part.key);
            match part.key.as_str() {
                "name" => self.goal = Some(word(&part.node, &key)?.to_owned()),
                "goal" => {
                    self.direction = Some(match word(&part.node, &key)? {
                        "maximize" | "maximise" => Direction::Maximise,
                        "minimize" | "minimise" => Direction::Minimise,
                        other => {
                            let why = format!("`{other}` is neither `maximize` nor `minimize`");
                            return Err(SweepError::new(part.node.line, &key, &why));
                        }
                    });
                }
                "target" => self.target = Some(number(&part.node, &key)?),
                _ => {
                    return Err(SweepError::new(
                        part.line,
                        &key,
                        "there is no such key; there are `name`, `goal` and `target`",
                    ));
                }
            }
        }
        Ok(())
    }

    fn early_terminate(&mut self, entry: &Entry) -> Result<(), SweepError> {
        let (mut kind, mut eta) = (None, None);
        for part in map(&entry.node, "early_terminate")? {
            let key = format!("early_terminate.{}", part.key);
            match part.key.as_str() {
                "type" => kind = Some((word(&part.node, &key)?, part.node.line)),
                "min_iter" => self.least_epochs = Some(count(part, &key)?),
                "max_iter" => self.epochs = Some(count(part, &key)?),
                "eta" => eta = Some(count(part, &key)?),
                // How many rungs there are follows from the epochs, and whether all below the best are stopped from the pruner.
                "s" | "strict" => self.ignored.push(key),
                _ => {
                    let known = "`type`, `min_iter`, `max_iter` and `eta`";
                    return Err(SweepError::new(part.line, &key, &format!("there is no such key; there are {known}")));
                }
            }
        }
        let Some((kind, line)) = kind else {
            return Err(SweepError::new(entry.line, "early_terminate.type", "it is missing; write `type: hyperband`"));
        };
        let text = match eta {
            Some(eta) if !kind.contains(':') => format!("{kind}:{eta}"),
            _ => kind.to_owned(),
        };
        let why = |error: super::prune::BadPruner| SweepError::new(line, "early_terminate.type", &error.to_string());
        self.pruner = Some(text.parse().map_err(why)?);
        Ok(())
    }
}

fn sampler(entry: &Entry) -> Result<SamplerKind, SweepError> {
    match word(&entry.node, "method")? {
        // What they call Bayesian is a Gaussian process; ours begins with one too, and changes when there are many trials.
        "bayes" => Ok(SamplerKind::Auto),
        other => other.parse().map_err(|error: super::sampler::BadSampler| {
            SweepError::new(entry.node.line, "method", &format!("{error}; `bayes` is `auto`"))
        }),
    }
}

fn map<'a>(node: &'a Node, key: &str) -> Result<&'a [Entry], SweepError> {
    match &node.content {
        Content::Map(entries) => Ok(entries),
        _ => Err(SweepError::new(node.line, key, "a map is expected, as in `{min: 1, max: 2}`")),
    }
}

fn word<'a>(node: &'a Node, key: &str) -> Result<&'a str, SweepError> {
    match &node.content {
        Content::Word(text) => Ok(text),
        _ => Err(SweepError::new(node.line, key, "one value is expected here, not a list or a map")),
    }
}

fn number(node: &Node, key: &str) -> Result<f64, SweepError> {
    let text = word(node, key)?;
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| SweepError::new(node.line, key, &format!("`{text}` is no finite number")))
}

fn count(entry: &Entry, key: &str) -> Result<u32, SweepError> {
    let text = word(&entry.node, key)?;
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| SweepError::new(entry.node.line, key, &format!("`{text}` is no whole number from 1 on")))
}

#[cfg(test)]
mod tests;
