//! How many workers a job has and how large they are, and how that may change while it runs.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BadSpec, CheckedSpec, LEAST_MEMORY, RANGES};

/// How many workers a job has, and how large each of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shape {
    pub workers: u32,
    /// Functions that compute one worker's step side by side.
    pub fan_out: u32,
    /// Bytes of memory of each function, on its device and in its sandbox together.
    pub memory: u64,
    /// The size of batches, if it was changed: of the batch, or of the global one if the job was given that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub batch: Option<NonZeroU32>,
}

impl Shape {
    /// One worker of the least size.
    pub const LEAST: Self = Self { workers: 1, fan_out: 1, memory: LEAST_MEMORY, batch: None };

    /// Functions that compute at once, of all workers.
    pub fn lanes(&self) -> u32 {
        self.workers.saturating_mul(self.fan_out)
    }

    /// Memory of all functions, with so many bytes of the host's for the copies that each worker needs of the model.
    pub fn all_memory(&self, host_bytes: u64) -> u64 {
        let functions = u64::from(self.lanes()).saturating_mul(self.memory);
        functions.saturating_add(u64::from(self.workers).saturating_mul(host_bytes))
    }

    /// A function's share of a device's time, compared with that of others of its tenant.
    pub fn weight(&self) -> NonZeroU32 {
        let weight = u32::try_from(self.memory / LEAST_MEMORY).unwrap_or(u32::MAX);
        NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)
    }
}

/// What is to be different about a job's workers from some round on. What is left out stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShapeChange {
    /// How many workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Bytes of memory of each function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Samples of a step of one function; of all of them, if the job was submitted with a global batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// The epoch, counted from 1, that begins with it. Otherwise it is made at the end of the round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_epoch: Option<u64>,
}

impl ShapeChange {
    /// The shape that it makes of another.
    pub fn of(&self, shape: &Shape) -> Shape {
        Shape {
            workers: self.workers.unwrap_or(shape.workers),
            fan_out: shape.fan_out,
            memory: self.memory.unwrap_or(shape.memory),
            batch: self.batch.and_then(NonZeroU32::new).or(shape.batch),
        }
    }

    /// Whether it is to be made at the end of a round of this epoch, counted from 1, or where that begins.
    pub fn is_due(&self, epoch: u64, is_begun: bool) -> bool {
        self.from_epoch.is_none_or(|from| if is_begun { from < epoch } else { from <= epoch })
    }
}

impl CheckedSpec {
    /// Refuses a change that the job's own words do not allow.
    pub fn check_change(&self, change: &ShapeChange) -> Result<(), BadSpec> {
        let values = [
            ("workers", change.workers.map(u64::from)),
            ("memory", change.memory),
            ("batch", change.batch.map(u64::from)),
            ("epochs", change.from_epoch),
        ];
        for (word, value) in values.into_iter().filter_map(|(word, value)| Some((word, value?))) {
            let range = RANGES.into_iter().find(|(of, ..)| *of == word);
            if let Some((_, low, high)) = range.filter(|(_, low, high)| !(low..=high).contains(&&value)) {
                let word = if word == "epochs" { "from_epoch" } else { word };
                return Err(BadSpec::new(word, format!("{value} is not between {low} and {high}")));
            }
        }
        let asked = self.words.workers;
        if let Some(workers) = change.workers.filter(|it| asked.is_range() && !(asked.least..=asked.most).contains(it))
        {
            let problem = format!("{workers} is not within {asked}, which the job was submitted with");
            return Err(BadSpec::new("workers", problem));
        }
        if change.batch.is_some() && !self.words.batch_schedule.is_empty() {
            return Err(BadSpec::new("batch", "a schedule says how large batches are"));
        }
        if let Some(from) = change.from_epoch.filter(|from| *from > self.words.epochs) {
            let problem = format!("{from}: the job ends after epoch {}", self.words.epochs);
            return Err(BadSpec::new("from_epoch", problem));
        }
        if *change == (ShapeChange { from_epoch: change.from_epoch, ..ShapeChange::default() }) {
            return Err(BadSpec::new(
                "workers",
                "nothing is to change: say how many workers, or their memory or batch",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobSpec;
    use super::*;

    fn spec(workers: &str) -> CheckedSpec {
        JobSpec { workers: workers.parse().unwrap(), ..JobSpec::new("f", None) }.check().unwrap()
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let shape = Shape { workers: 2, fan_out: 3, memory: 1 << 20, batch: NonZeroU32::new(16) };
        let change = ShapeChange { workers: Some(4), ..ShapeChange::default() };
        assert_eq!(change.of(&shape), Shape { workers: 4, ..shape });
        let change = ShapeChange { batch: Some(8), memory: Some(2 << 20), ..ShapeChange::default() };
        assert_eq!(change.of(&shape), Shape { memory: 2 << 20, batch: NonZeroU32::new(8), ..shape });
    }

    #[test]
    fn a_change_is_made_at_the_next_end_of_a_round_or_where_its_epoch_begins() {
        let now = ShapeChange::default();
        assert!(now.is_due(1, true) && now.is_due(1, false));
        let later = ShapeChange { from_epoch: Some(3), ..now };
        let due = |epoch, is_begun| later.is_due(epoch, is_begun);
        assert_eq!([due(2, false), due(3, false), due(3, true), due(4, true)], [false, true, false, true]);
    }

    #[test]
    fn changes_stay_within_what_the_job_was_submitted_with() {
        let change = |workers| ShapeChange { workers: Some(workers), ..ShapeChange::default() };
        assert!(spec("2..8").check_change(&change(8)).is_ok() && spec("3").check_change(&change(9)).is_ok());
        let refused = spec("2..8").check_change(&change(9)).unwrap_err();
        assert!(refused.word == "workers" && refused.problem.contains("2..8"), "{refused}");
        for wrong in [
            ShapeChange::default(),
            ShapeChange { from_epoch: Some(2), ..ShapeChange::default() },
            ShapeChange { from_epoch: Some(11), ..change(2) },
            change(0),
            ShapeChange { memory: Some(1), ..ShapeChange::default() },
        ] {
            assert!(spec("2").check_change(&wrong).is_err(), "{wrong:?}");
        }
    }
}
