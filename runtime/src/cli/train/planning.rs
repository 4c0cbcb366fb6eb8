//! Flags that say how a job is planned while it runs, and what it may cost.

use std::str::FromStr;

use clap::Args;
use weft_core::plan::policy::Policy;
use weft_core::spec::{DEFAULT_MEMORY_STEP, Memory, PlanWords};

use super::options::finite;
use crate::job::JobSpec;
use crate::units::{Size, Span};

/// Memory of a worker: a size, `auto`, or from one size to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    One(Memory),
    Range { least: u64, most: u64 },
}

impl Sizes {
    /// What a worker begins with: of a range what is as many times the least as the most is of it.
    pub fn first(self) -> Memory {
        match self {
            Self::One(memory) => memory,
            Self::Range { least, most } => {
                let middle = (least as f64 * most as f64).sqrt() as u64;
                let steps = middle.saturating_sub(least) / DEFAULT_MEMORY_STEP;
                Memory::Bytes(least + steps * DEFAULT_MEMORY_STEP)
            }
        }
    }

    /// What a job is told of a range.
    pub fn words(self) -> Option<PlanWords> {
        match self {
            Self::One(_) => None,
            Self::Range { least, most } => {
                Some(PlanWords { least_memory: Some(least), most_memory: Some(most), ..PlanWords::default() })
            }
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::One(Memory::Auto));
        }
        match text.split_once("..") {
            None => size(text).map(|bytes| Self::One(Memory::Bytes(bytes))),
            Some((least, most)) => {
                let (least, most) = (size(least)?, size(most.trim_start_matches('='))?);
                if least > most {
                    return Err(format!("`{text}` is an empty range: the smaller size comes first"));
                }
                Ok(Self::Range { least, most })
            }
        }
    }
}

/// A size; also with the first letter of its unit alone.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let whole = match text.ends_with(['K', 'M', 'G', 'T']) {
        true => format!("{text}iB"),
        false => text.to_owned(),
    };
    whole.parse::<Size>().map(|size| size.0).map_err(|error| error.to_string())
}

/// Who decides how many workers there are and how large they are, and what all of it may take.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Planning")]
pub struct PlanArgs {
    /// Who decides about workers while the job runs: elastic, best, cheapest, cheapest-within:10m, fastest,
    /// fastest-within:0.50, feng-cost, feng-ratio or manual [default: manual, which is you]
    #[arg(long, group = "who")]
    policy: Option<Policy>,
    /// Choose the cheapest workers, of `--workers 1..8` and `--memory 128MiB..1GiB`
    #[arg(long, group = "who")]
    cheapest: bool,
    /// Choose the fastest workers
    #[arg(long, group = "who")]
    fastest: bool,
    /// Choose the cheapest workers with which the job is done by then
    #[arg(long, value_name = "SPAN", group = "who", value_parser = cheapest_within)]
    cheapest_within: Option<Policy>,
    /// Choose the fastest workers with which the job costs no more
    #[arg(long, value_name = "COST", group = "who", value_parser = fastest_within)]
    fastest_within: Option<Policy>,
    /// Be done by then: the cheapest workers that are, unless another policy is given [default: none]
    #[arg(long, value_name = "SPAN")]
    deadline: Option<Span>,
    /// End, checkpointed, before the job costs more; and choose the fastest workers, where there are any to choose from
    /// [default: none]
    #[arg(long, value_name = "COST", value_parser = finite::<f64>)]
    budget: Option<f64>,
    /// End once nothing more is to be tried out, and keep no model: see `weft job history NAME --plan`
    #[arg(long)]
    plan_only: bool,
}

fn cheapest_within(text: &str) -> Result<Policy, String> {
    format!("cheapest-within:{text}").parse().map_err(|error: weft_core::plan::policy::BadPolicy| error.to_string())
}

fn fastest_within(text: &str) -> Result<Policy, String> {
    format!("fastest-within:{text}").parse().map_err(|error: weft_core::plan::policy::BadPolicy| error.to_string())
}

impl PlanArgs {
    /// The same job with what was asked for here.
    pub fn over(self, spec: JobSpec) -> JobSpec {
        let before = spec.plan.clone().unwrap_or_default();
        let can_choose = before.most_memory.is_some() || spec.workers.is_range();
        let named = self.policy.or(self.cheapest_within).or(self.fastest_within);
        let implied = match (self.cheapest, self.fastest) {
            (true, _) => Some(Policy::Cheapest),
            (_, true) => Some(Policy::Fastest),
            _ if self.deadline.is_some() => Some(Policy::Cheapest),
            _ if self.budget.is_some() && can_choose => Some(Policy::Fastest),
            _ => None,
        };
        let milliseconds = |span: Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
        let plan = PlanWords {
            policy: named.or(implied).map(|policy| policy.to_string()).or(before.policy),
            deadline_ms: self.deadline.map_or(before.deadline_ms, milliseconds),
            budget: self.budget.or(before.budget),
            only: self.plan_only || before.only,
            ..before
        };
        JobSpec { plan: (plan != PlanWords::default()).then_some(plan), ..spec }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::TrainArgs;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn spec(line: &str) -> Result<JobSpec, String> {
        let parsed = Line::try_parse_from(["train", "f"].into_iter().chain(line.split_whitespace()));
        parsed.map(|line| line.train.spec()).map_err(|error| error.to_string())
    }

    fn plan(line: &str) -> PlanWords {
        spec(line).unwrap().plan.unwrap_or_default()
    }

    #[test]
    fn ranges_are_what_a_policy_chooses_from() {
        let spec = spec("--cheapest-within 10m --workers 1..8 --memory 128M..1GiB").unwrap();
        let plan = spec.plan.clone().unwrap();
        assert_eq!(plan.policy.as_deref(), Some("cheapest-within:600s"));
        assert_eq!((plan.least_memory, plan.most_memory), (Some(128 << 20), Some(1 << 30)));
        // About in the middle, by how many times as much it is.
        assert_eq!(spec.memory, Memory::Bytes(320 << 20));
        assert!(spec.check().is_ok());
    }

    #[test]
    fn limits_say_who_decides_where_nobody_else_does() {
        assert_eq!(plan("--deadline 5m --workers 1..4").policy.as_deref(), Some("cheapest"));
        assert_eq!(plan("--deadline 5m --workers 1..4").deadline_ms, 300_000);
        assert_eq!(plan("--budget 0.5 --workers 1..4").policy.as_deref(), Some("fastest"));
        assert_eq!(plan("--budget 0.5 --workers 4"), PlanWords { budget: Some(0.5), ..PlanWords::default() });
        assert_eq!(plan("--budget 0.5 --policy elastic --workers 1..4").policy.as_deref(), Some("elastic"));
        assert_eq!(
            plan("--fastest --workers 1..4 --plan-only"),
            PlanWords { policy: Some("fastest".to_owned()), only: true, ..PlanWords::default() }
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_flag() {
        for line in [
            "--policy quick",
            "--cheapest --fastest",
            "--cheapest-within soon",
            "--fastest-within nan",
            "--memory 1G..128M",
            "--memory 1X..2X",
            "--budget inf",
        ] {
            assert!(spec(line).is_err(), "{line}");
        }
        // A range that nobody chooses from.
        assert!(spec("--memory 128M..1G").unwrap().check().is_err());
    }
}
