//! The trials of a study as a table: what is exported and drawn of it.
//!
//! It holds what everybody may see of a study, wherever the trials ran: no ladders, no orders.

use std::cmp::Ordering;

use super::sampler::Observation;
use super::space::{Point, Space};
use super::study::{Direction, Report, State};

/// A study and its trials.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    /// The metric that trials are compared by.
    pub goal: String,
    pub direction: Direction,
    pub space: Space,
    /// What was tried follows from it, and so does which points are drawn to tell what mattered.
    pub seed: u64,
    /// By their numbers.
    pub rows: Vec<Row>,
}

/// A trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub number: u32,
    pub point: Point,
    pub state: State,
    /// With rising epochs.
    pub reports: Vec<Report>,
    pub workers: u32,
    pub cost: f64,
    /// How long it trained.
    pub seconds: f64,
    /// The job that it is, where it is one.
    pub job: Option<String>,
    /// Milliseconds since 1970.
    pub started: Option<u64>,
    pub ended: Option<u64>,
}

impl Row {
    pub fn epoch(&self) -> u32 {
        self.reports.last().map_or(0, |report| report.epoch)
    }

    /// The best value that it came to; none if it failed.
    pub fn value(&self, direction: Direction) -> Option<f64> {
        if matches!(self.state, State::Failed(_)) {
            return None;
        }
        let values = self.reports.iter().map(|report| direction.turned(report.value)).filter(|value| value.is_finite());
        values.min_by(f64::total_cmp).map(|value| direction.turned(value))
    }

    /// The word for its state.
    pub fn word(&self) -> &'static str {
        match &self.state {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Pausing => "pausing",
            State::Paused => "paused",
            State::Stopping(_) => "stopping",
            State::Done => "done",
            State::Pruned => "pruned",
            State::Stopped => "stopped",
            State::Failed(_) => "failed",
        }
    }
}

impl Table {
    pub fn value(&self, row: &Row) -> Option<f64> {
        row.value(self.direction)
    }

    /// The best first; equal ones by their numbers. Without those that have no value.
    pub fn ranked(&self) -> Vec<(&Row, f64)> {
        let mut ranked: Vec<(&Row, f64)> = self.rows.iter().filter_map(|row| Some((row, self.value(row)?))).collect();
        let turned = |value: f64| self.direction.turned(value);
        ranked.sort_by(|a, b| turned(a.1).total_cmp(&turned(b.1)).then(a.0.number.cmp(&b.0.number)));
        ranked
    }

    pub fn best(&self) -> Option<(&Row, f64)> {
        self.ranked().first().copied()
    }

    /// Those that have a value, in the order in which they came to it: by their ends, and by their numbers where ends are not
    /// known.
    fn told(&self) -> Vec<(&Row, f64)> {
        let mut told: Vec<(&Row, f64)> = self.rows.iter().filter_map(|row| Some((row, self.value(row)?))).collect();
        told.sort_by(|(a, _), (b, _)| match (a.ended, b.ended) {
            (Some(first), Some(second)) => first.cmp(&second).then(a.number.cmp(&b.number)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.number.cmp(&b.number),
        });
        told
    }

    /// For each trial that came to a value: its number, its value, and the best value so far.
    pub fn curve(&self) -> Vec<(u32, f64, f64)> {
        let mut best = f64::INFINITY;
        let step = |(row, value): (&Row, f64)| {
            best = best.min(self.direction.turned(value));
            (row.number, value, self.direction.turned(best))
        };
        self.told().into_iter().map(step).collect()
    }

    /// What a model of the goal is fitted to: lower is better.
    pub fn observations(&self) -> Vec<Observation> {
        let observation = |(row, value): (&Row, f64)| Observation {
            point: row.point.clone(),
            value: Some(self.direction.turned(value)),
        };
        self.told().into_iter().map(observation).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tune::space::Value;

    pub fn row(number: u32, lr: f64, optimizer: &str, values: &[f64]) -> Row {
        let reports = values.iter().zip(1..).map(|(&value, epoch)| Report { epoch, value }).collect();
        Row {
            number,
            point: [("lr".to_owned(), Value::Number(lr)), ("optimizer".to_owned(), Value::Text(optimizer.to_owned()))]
                .into(),
            state: State::Done,
            reports,
            workers: 1,
            cost: 0.25,
            seconds: 1.5,
            job: Some(format!("job-{number}")),
            started: Some(1_767_225_599_000 + 1_000 * u64::from(number)),
            ended: Some(1_767_225_599_500 + 1_000 * u64::from(number)),
        }
    }

    pub fn table() -> Table {
        let texts = ["lr=log:1e-4..1e-1", "optimizer=sgd|adam", "units=int:16..64:16 if optimizer=adam"];
        let mut rows = vec![
            row(0, 1e-3, "sgd", &[0.5, 0.7]),
            row(1, 1e-2, "adam", &[0.8, 0.9]),
            row(2, 1e-1, "sgd", &[]),
            row(3, 1e-4, "sgd", &[0.6]),
            row(4, 2e-2, "adam", &[0.4, 0.95]),
        ];
        rows[1].point.insert("units".to_owned(), Value::Integer(32));
        rows[4].point.insert("units".to_owned(), Value::Integer(64));
        rows[2].state = State::Failed("its loss was \"NaN\", <again>".to_owned());
        rows[3].state = State::Pruned;
        Table {
            name: "digits & more".to_owned(),
            goal: "accuracy".to_owned(),
            direction: Direction::Maximise,
            space: Space::parse(&texts).unwrap(),
            seed: 1,
            rows,
        }
    }

    #[test]
    fn the_best_trial_has_the_best_value_of_all_epochs() {
        let mut table = table();
        assert_eq!(table.best().map(|(row, value)| (row.number, value)), Some((4, 0.95)));
        table.direction = Direction::Minimise;
        assert_eq!(table.best().map(|(row, value)| (row.number, value)), Some((4, 0.4)));
    }

    #[test]
    fn the_curve_follows_the_order_of_the_ends() {
        let mut table = table();
        table.rows[0].ended = Some(u64::MAX);
        assert_eq!(table.curve(), [(1, 0.9, 0.9), (3, 0.6, 0.9), (4, 0.95, 0.95), (0, 0.7, 0.95)]);
    }

    #[test]
    fn a_failed_trial_has_no_value() {
        let mut table = table();
        table.rows[4].state = State::Failed("out of memory".to_owned());
        assert_eq!(table.value(&table.rows[4]), None);
        assert_eq!(table.best().map(|(row, _)| row.number), Some(1));
    }
}
