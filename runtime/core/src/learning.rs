//! What follows from a validation: go on, go on slower, or stop. Pure.

use serde::{Deserialize, Serialize};

use crate::spec::JobSpec;

/// What was seen so far, kept in checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learning {
    pub rate: f32,
    /// The lowest loss that counted as better, for stopping early and for lowering the rate.
    stop: Watched,
    plateau: Watched,
    /// The best validation, for whoever keeps the best model.
    best: Option<f64>,
}

/// The lowest loss, and for how many validations there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Watched {
    lowest: Option<f64>,
    since: u32,
}

impl Watched {
    fn see(&mut self, loss: f64, delta: f64) {
        match self.lowest {
            Some(lowest) if loss.is_nan() || loss >= lowest - delta => self.since = self.since.saturating_add(1),
            _ => *self = Self { lowest: Some(loss), since: 0 },
        }
    }
}

/// What an epoch came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub train_loss: f64,
    /// None where it was not validated.
    pub validation: Option<Validated>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Validated {
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    /// With the reason, for people.
    End(String),
    /// It does not get better any more on the samples that there are; with the reason.
    Enough(String),
}

impl Learning {
    pub fn new(spec: &JobSpec) -> Self {
        Self { rate: spec.lr, stop: Watched::default(), plateau: Watched::default(), best: None }
    }

    /// What was the best on other samples says nothing of those that come now. The rate stays.
    pub fn begin_version(&mut self) {
        *self = Self { rate: self.rate, stop: Watched::default(), plateau: Watched::default(), best: None };
    }

    /// Looks at an epoch. The second part tells whether it was the best so far.
    pub fn judge(&mut self, spec: &JobSpec, seen: Seen) -> (Verdict, bool) {
        let loss = match seen.validation {
            Some(validated) => Some(validated.loss.unwrap_or(seen.train_loss)),
            // Whoever never validates goes by the loss of training.
            None if spec.validate_every == 0 => Some(seen.train_loss),
            None => None,
        };
        let Some(loss) = loss else { return (Verdict::GoOn, false) };
        let accuracy = seen.validation.and_then(|validated| validated.accuracy);
        // By accuracy where there is one, else by loss: higher is better.
        let merit = accuracy.unwrap_or(-loss);
        let is_best = self.best.is_none_or(|best| merit > best);
        if is_best {
            self.best = Some(merit);
        }
        if let (Some(goal), Some(reached)) = (spec.goal_accuracy, accuracy)
            && reached >= goal
        {
            return (Verdict::End(format!("accuracy {reached:.4} reached the goal of {goal}")), is_best);
        }
        if let Some(goal) = spec.goal_loss
            && loss <= goal
        {
            return (Verdict::End(format!("loss {loss:.6} reached the goal of {goal}")), is_best);
        }
        if let Some(early) = &spec.early_stop {
            self.stop.see(loss, early.delta);
            if self.stop.since >= early.patience {
                let reason = format!("no better in {} validations: stopped early", self.stop.since);
                return (Verdict::Enough(reason), is_best);
            }
        }
        if let Some(plateau) = &spec.plateau {
            self.plateau.see(loss, 0.0);
            if self.plateau.since > plateau.patience {
                self.rate = (self.rate * plateau.factor).max(plateau.min);
                self.plateau.since = 0;
            }
        }
        (Verdict::GoOn, is_best)
    }
}

/// Why a job is over that has done all its epochs, for people: a goal would have ended it sooner, so it missed those it had.
pub fn all_done(spec: &JobSpec) -> String {
    let done = match spec.epochs {
        1 => "the only epoch is done".to_owned(),
        epochs => format!("all {epochs} epochs are done"),
    };
    let accuracy = spec.goal_accuracy.map(|goal| format!("accuracy {goal}"));
    let loss = spec.goal_loss.map(|goal| format!("loss {goal}"));
    match (accuracy, loss) {
        (None, None) => done,
        (Some(goal), None) | (None, Some(goal)) => format!("{done}; the goal of {goal} was not reached"),
        (Some(one), Some(other)) => format!("{done}; neither the goal of {one} nor that of {other} was reached"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{EarlyStop, Plateau};

    fn validated(loss: f64, accuracy: f64) -> Seen {
        let validation = Some(Validated { loss: Some(loss), accuracy: Some(accuracy) });
        Seen { train_loss: loss, validation }
    }

    fn spec() -> JobSpec {
        JobSpec::new("f", None)
    }

    #[test]
    fn a_goal_ends_it() {
        let spec = JobSpec { goal_accuracy: Some(0.9), ..spec() };
        let mut learning = Learning::new(&spec);
        assert_eq!(learning.judge(&spec, validated(1.0, 0.89)).0, Verdict::GoOn);
        assert!(matches!(learning.judge(&spec, validated(1.0, 0.9)).0, Verdict::End(reason) if reason.contains("0.9")));
        let spec = JobSpec { goal_accuracy: None, goal_loss: Some(0.5), ..spec };
        assert!(matches!(Learning::new(&spec).judge(&spec, validated(0.5, 0.1)).0, Verdict::End(_)));
    }

    #[test]
    fn a_goal_that_was_missed_is_said_at_the_end() {
        let spec = JobSpec { epochs: 1, ..spec() };
        assert_eq!(all_done(&spec), "the only epoch is done");
        let spec = JobSpec { epochs: 10, ..spec };
        assert_eq!(all_done(&spec), "all 10 epochs are done");
        let spec = JobSpec { goal_accuracy: Some(0.97), ..spec };
        assert_eq!(all_done(&spec), "all 10 epochs are done; the goal of accuracy 0.97 was not reached");
        let both = JobSpec { goal_loss: Some(0.1), ..spec.clone() };
        let said = "all 10 epochs are done; neither the goal of accuracy 0.97 nor that of loss 0.1 was reached";
        assert_eq!(all_done(&both), said);
        assert!(all_done(&JobSpec { goal_accuracy: None, ..both }).ends_with("the goal of loss 0.1 was not reached"));
    }

    #[test]
    fn patience_ends_and_begins_again_with_each_improvement() {
        let spec = JobSpec { early_stop: Some(EarlyStop { patience: 2, delta: 0.1 }), ..spec() };
        let mut learning = Learning::new(&spec);
        let verdicts: Vec<bool> = [1.0, 0.95, 0.8, 0.75, 0.75]
            .into_iter()
            .map(|loss| learning.judge(&spec, validated(loss, 0.0)).0 == Verdict::GoOn)
            .collect();
        assert_eq!(verdicts, [true, true, true, true, false]);
    }

    #[test]
    fn the_rate_falls_on_a_plateau_and_not_below_its_least() {
        let spec = JobSpec { lr: 1.0, plateau: Some(Plateau { factor: 0.1, patience: 1, min: 0.05 }), ..spec() };
        let mut learning = Learning::new(&spec);
        let rates: Vec<f32> = [1.0, 1.0, 1.0, 1.0, 1.0, 0.5]
            .into_iter()
            .map(|loss| {
                learning.judge(&spec, validated(loss, 0.0));
                learning.rate
            })
            .collect();
        assert_eq!(rates, [1.0, 1.0, 0.1, 0.1, 0.05, 0.05]);
    }

    #[test]
    fn an_epoch_that_was_not_validated_decides_nothing() {
        let spec = JobSpec { goal_loss: Some(9.0), validate_every: 2, ..spec() };
        let mut learning = Learning::new(&spec);
        assert_eq!(learning.judge(&spec, Seen { train_loss: 1.0, validation: None }), (Verdict::GoOn, false));
    }

    #[test]
    fn the_best_is_by_accuracy() {
        let mut learning = Learning::new(&spec());
        let best: Vec<bool> = [(1.0, 0.5), (0.1, 0.4), (2.0, 0.6)]
            .into_iter()
            .map(|(loss, accuracy)| learning.judge(&spec(), validated(loss, accuracy)).1)
            .collect();
        assert_eq!(best, [true, false, true]);
    }
}
