//! How a job is planned while it runs: who decides about its workers, between which bounds, and what it may use.
//!
//! A budget holds without any policy. All else is about a policy's decisions, and is refused where nothing decides.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BadSpec, CheckedSpec, JobSpec, LEAST_MEMORY, MAX_WORKERS, Memory};
use crate::plan::aim::Limits;
use crate::plan::bounds::Bounds;
use crate::plan::policy::Policy;
use crate::sync::{Every, Rule, Sync};

/// Memory is chosen in steps of so many bytes unless something else is said.
pub const DEFAULT_MEMORY_STEP: u64 = 64 << 20;
const WORD: &str = "plan";

/// Who decides how many workers a job has and how large they are, while it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanWords {
    /// `manual`, `elastic`, `best`, `cheapest`, `cheapest-within:10m`, `fastest`, `fastest-within:0.50`, `feng-cost` or
    /// `feng-ratio`. Workers are chosen from the range that `workers` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The least memory of each function that a policy may choose, in bytes; `memory` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_memory: Option<u64>,
    /// The most memory of each function that a policy may choose, in bytes; `memory` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_memory: Option<u64>,
    /// Bytes from one size to the next; 64 MiB if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_step: Option<u64>,
    /// Milliseconds within which the job is to be done; 0 for none. The policy chooses workers that keep it, if any do.
    #[serde(skip_serializing_if = "is_zero")]
    pub deadline_ms: u64,
    /// What the job may cost. It ends, checkpointed, before it would cost more, whatever the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// End once the policy has nothing more to try, and keep no model: what is wanted is what it has found out.
    #[serde(skip_serializing_if = "is_false")]
    pub only: bool,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What is to be planned about a job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedPlan {
    pub policy: Policy,
    pub bounds: Bounds,
    pub limits: Limits,
    /// Whether it is only about finding out.
    pub only: bool,
}

impl CheckedPlan {
    /// Whether somebody else than people decides about the shape.
    pub fn decides(&self) -> bool {
        self.policy != Policy::Manual
    }

    /// Whether shapes are tried out for a few steps each.
    pub fn tries(&self) -> bool {
        !matches!(self.policy, Policy::Manual | Policy::Elastic | Policy::Best)
    }

    fn chooses_workers(&self) -> bool {
        !matches!(self.policy, Policy::Manual | Policy::FengCost | Policy::FengRatio)
    }

    fn chooses_memory(&self) -> bool {
        self.tries()
    }
}

fn wrong<T>(problem: impl std::fmt::Display) -> Result<T, BadSpec> {
    Err(BadSpec::new(WORD, problem))
}

impl PlanWords {
    /// What is planned of a job, apart from who trains it.
    pub(super) fn check(&self, spec: &JobSpec) -> Result<CheckedPlan, BadSpec> {
        if *self == Self::default() {
            return wrong("it says nothing: give a policy, a budget, or both");
        }
        let policy: Policy = match &self.policy {
            Some(text) => text.parse().or_else(wrong)?,
            None => Policy::Manual,
        };
        let memory = match (spec.memory, policy) {
            (Memory::Bytes(bytes), _) => bytes,
            (Memory::Auto, Policy::Manual) => LEAST_MEMORY,
            (Memory::Auto, _) => return wrong("with `memory` as `auto` nothing can be planned: give a size"),
        };
        let memory_step = self.memory_step.unwrap_or(DEFAULT_MEMORY_STEP);
        let bounds = match (policy, self.least_memory, self.most_memory) {
            (Policy::Manual, ..) if self.least_memory.is_some() || self.most_memory.is_some() => {
                return wrong("`manual` does not choose memory: use `cheapest`, `fastest` or `feng-cost`");
            }
            // Whatever people choose stays.
            (Policy::Manual, ..) => Bounds {
                least_workers: 1,
                most_workers: MAX_WORKERS,
                least_memory: LEAST_MEMORY,
                most_memory: u64::MAX,
                memory_step,
            },
            (_, least, most) => Bounds {
                least_workers: spec.workers.least,
                most_workers: spec.workers.most,
                least_memory: least.unwrap_or(memory),
                most_memory: most.unwrap_or(memory),
                memory_step,
            },
        };
        bounds.check().or_else(wrong)?;
        let limits =
            Limits { seconds: (self.deadline_ms > 0).then(|| self.deadline_ms as f64 / 1e3), cost: self.budget };
        let plan = CheckedPlan { policy, bounds, limits, only: self.only };
        plan.check(memory)?;
        if let Some(budget) = self.budget.filter(|budget| !(budget.is_finite() && *budget > 0.0)) {
            return wrong(format!("a budget of {budget} must be a number above 0"));
        }
        Ok(plan)
    }
}

impl CheckedPlan {
    fn check(&self, memory: u64) -> Result<(), BadSpec> {
        let Bounds { least_workers, most_workers, least_memory, most_memory, .. } = self.bounds;
        let (has_workers, has_sizes) = (least_workers < most_workers, least_memory < most_memory);
        if !(least_memory..=most_memory).contains(&memory) {
            return wrong(format!(
                "`memory`, {memory} bytes, is not from {least_memory} to {most_memory}, between which \
                 it is to be chosen"
            ));
        }
        if self.decides() && has_sizes && !self.chooses_memory() {
            return wrong(format!(
                "`{}` does not choose memory: use `cheapest`, `fastest` or `feng-cost`",
                self.policy
            ));
        }
        let (nothing, range) = match (self.chooses_workers(), self.chooses_memory()) {
            (true, true) => (!has_workers && !has_sizes, "`workers` as in `1..8`, or `least_memory` and `most_memory`"),
            (true, false) => (!has_workers, "`workers` as in `1..8`"),
            (false, true) => (!has_sizes, "`least_memory` and `most_memory`"),
            (false, false) => (false, ""),
        };
        if nothing {
            return wrong(format!("`{}` has nothing to choose from: give a range of {range}", self.policy));
        }
        if self.limits.seconds.is_some()
            && !matches!(
                self.policy,
                Policy::Cheapest | Policy::CheapestWithin(_) | Policy::Fastest | Policy::FastestWithin(_)
            )
        {
            return wrong(format!(
                "`{}` does not look at a deadline: use `cheapest`, or `max_time_ms` to end the job",
                self.policy
            ));
        }
        if self.only && !self.tries() {
            return wrong(format!(
                "`{}` tries nothing out: `only` is for `cheapest`, `fastest` and `feng-cost`",
                self.policy
            ));
        }
        Ok(())
    }
}

impl CheckedSpec {
    /// Refuses what cannot be planned about workers that work together like this.
    pub(super) fn check_plan(&self, sync: &Sync) -> Result<(), BadSpec> {
        let Some(plan) = &self.plan else { return Ok(()) };
        if sync.pace.is_free() && self.words.workers.most > 1 {
            return wrong(format!(
                "workers of the pace `{}` do not wait for each other, so there is no moment to decide at: use `barrier`",
                sync.pace
            ));
        }
        if plan.tries() && (self.fans_out_epoch() || has_long_rounds(sync.rule)) {
            return wrong(format!(
                "`{}` tries shapes for a few steps each, and these workers only meet when an epoch is over: use \
                 `elastic`, `best`, or another rule",
                plan.policy
            ));
        }
        if plan.chooses_workers() {
            for workers in plan.bounds.least_workers..=plan.bounds.most_workers {
                self.check_workers(sync, workers)?;
            }
        }
        Ok(())
    }
}

/// Whether rounds are whole epochs.
fn has_long_rounds(rule: Rule) -> bool {
    matches!(rule, Rule::Admm(_) | Rule::StatisticSum | Rule::KAverage(Every::Epochs(_) | Every::End))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TrainerKind;

    fn spec(workers: &str, plan: &str) -> JobSpec {
        let plan = serde_json::from_str(plan).unwrap();
        JobSpec { workers: workers.parse().unwrap(), plan: Some(plan), ..JobSpec::new("f", None) }
    }

    fn problem(spec: &JobSpec) -> String {
        let error = spec.check().unwrap_err();
        assert_eq!(error.word, "plan");
        error.problem
    }

    #[test]
    fn a_policy_chooses_between_the_workers_and_the_memory_that_were_given() {
        let words = r#"{"policy": "cheapest-within:10m", "least_memory": 134217728, "most_memory": 1073741824}"#;
        let plan = spec("1..8", words).check().unwrap().plan.unwrap();
        assert_eq!(plan.policy, Policy::CheapestWithin(600.0));
        let Bounds { most_workers, least_memory, most_memory, memory_step, .. } = plan.bounds;
        assert_eq!((most_workers, least_memory, most_memory), (8, 128 << 20, 1 << 30));
        assert!(memory_step == DEFAULT_MEMORY_STEP && plan.tries() && plan.decides());
    }

    #[test]
    fn a_budget_needs_no_policy() {
        let plan = spec("2", r#"{"budget": 0.5}"#).check().unwrap().plan.unwrap();
        assert_eq!((plan.policy, plan.limits.cost), (Policy::Manual, Some(0.5)));
        assert!(!plan.decides());
    }

    #[test]
    fn what_cannot_be_planned_is_refused_with_what_to_do() {
        for (workers, plan, words) in [
            ("1", "{}", "says nothing"),
            ("1", r#"{"policy": "quick"}"#, "is no policy"),
            ("4", r#"{"policy": "elastic"}"#, "range of `workers`"),
            ("1..4", r#"{"policy": "feng-cost"}"#, "`least_memory` and `most_memory`"),
            ("1..4", r#"{"policy": "elastic", "most_memory": 1073741824}"#, "does not choose memory"),
            ("1", r#"{"policy": "cheapest"}"#, "nothing to choose from"),
            ("1..4", r#"{"policy": "elastic", "deadline_ms": 1000}"#, "does not look at a deadline"),
            ("1", r#"{"deadline_ms": 1000}"#, "`max_time_ms`"),
            ("1..4", r#"{"policy": "best", "only": true}"#, "tries nothing out"),
            ("1", r#"{"budget": 0}"#, "above 0"),
            ("1", r#"{"budget": -1}"#, "above 0"),
            ("1..4", r#"{"policy": "cheapest", "most_memory": 1048576}"#, "no size of memory"),
            ("1..4", r#"{"policy": "cheapest", "least_memory": 1073741824, "most_memory": 2147483648}"#, "`memory`"),
            ("1..4", r#"{"policy": "cheapest", "most_memory": 1073741824, "memory_step": 0}"#, "steps of 0"),
        ] {
            let told = problem(&spec(workers, plan));
            assert!(told.contains(words), "{plan}: {told}");
        }
        let auto = JobSpec { memory: Memory::Auto, ..spec("1..4", r#"{"policy": "elastic"}"#) };
        assert!(problem(&auto).contains("`auto`"));
    }

    #[test]
    fn workers_that_cannot_be_replaced_between_steps_are_refused() {
        let refused = |plan: &str, change: fn(&mut JobSpec)| {
            let mut spec = spec("1..4", plan);
            change(&mut spec);
            let error = spec.check().unwrap().sync(TrainerKind { convex: true, ..TrainerKind::default() }).unwrap_err();
            error.problem
        };
        let free = |spec: &mut JobSpec| spec.pace = Some("on-arrival".to_owned());
        assert!(refused(r#"{"policy": "elastic"}"#, free).contains("do not wait for each other"));
        assert!(refused(r#"{"budget": 1}"#, free).contains("do not wait for each other"));
        let admm = |spec: &mut JobSpec| spec.rule = Some("admm".to_owned());
        assert!(refused(r#"{"policy": "cheapest"}"#, admm).contains("only meet when an epoch is over"));
        let tree = |spec: &mut JobSpec| spec.sync.topology = Some("tree:1,2,4".to_owned());
        refused(r#"{"policy": "elastic"}"#, tree);
    }

    #[test]
    fn a_spec_without_a_plan_is_written_as_before() {
        let text = serde_json::to_string(&JobSpec::new("f", None)).unwrap();
        assert!(!text.contains("plan"), "{text}");
        assert!(serde_json::from_str::<JobSpec>(r#"{"function": "f", "plan": {"plicy": "best"}}"#).is_err());
    }
}
