//! A study's progress: a table of its trials and the curve of the best in a terminal, lines elsewhere. All of it on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use weft_core::tune::space::{Parameter, Point, Value};
use weft_core::tune::study::Direction;

use crate::api::types::{TrialView, TuneDetail};
use crate::cli::output::{Output, Style, harmless};
use crate::cli::train::screen::Curve;
use crate::study::{TrialState, TuneEvent, TuneState};

/// Lines of the table: of trials that run, and of the best of those that ended.
const RUNNING: usize = 6;
const BEST: usize = 4;
/// How wide the table is at most: what does not fit into a usual terminal is left out rather than wrapped.
const WIDTH: usize = 79;

pub struct Screen<'a> {
    out: &'a Output,
    study: Study,
    bars: Option<Bars>,
    curve: Curve,
}

/// What is known of the study.
struct Study {
    name: String,
    goal: String,
    direction: Direction,
    asked: u32,
    epochs: u32,
    /// In the order in which they are shown.
    parameters: Vec<String>,
    trials: BTreeMap<u32, Live>,
    best: Option<(u32, f64)>,
}

/// A trial as it was told of last.
struct Live {
    state: TrialState,
    epoch: u32,
    value: Option<f64>,
    cost: f64,
    point: Point,
}

struct Bars {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        // The numbers, the curve, the header, and the trials.
        let line = |_| all.add(ProgressBar::new(0).with_style(style.clone()));
        Self { lines: (0..3 + RUNNING + BEST).map(line).collect(), all }
    }
}

impl<'a> Screen<'a> {
    pub fn new(detail: &TuneDetail, out: &'a Output) -> Self {
        let bars = (!out.is_quiet() && std::io::stderr().is_terminal()).then(Bars::new);
        Self { out, study: Study::new(detail), bars, curve: Curve::default() }
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        match &self.bars {
            // Fails only where there is no terminal to write to any more.
            Some(bars) => drop(bars.all.println(text)),
            None => self.out.note(text),
        }
    }

    /// Nothing of it stays but the lines.
    pub fn close(&mut self) {
        if let Some(bars) = self.bars.take() {
            drop(bars.all.clear());
        }
    }

    /// The number of a trial that was told of, and of which nothing else is known yet.
    pub fn asks_for(&self, event: &TuneEvent) -> Option<u32> {
        match event {
            TuneEvent::Trial { trial, .. } if !self.study.trials.contains_key(trial) => Some(*trial),
            _ => None,
        }
    }

    /// What was asked for.
    pub fn learn(&mut self, trials: &[TrialView]) {
        trials.iter().for_each(|trial| self.study.learn(trial));
    }

    pub fn show(&mut self, event: &TuneEvent) {
        let said = self.study.hear(event);
        if let Some(value) = said.curve {
            self.curve.push(value);
        }
        // In a terminal the table says the rest.
        if let Some(line) = said.line.filter(|_| self.bars.is_none() || said.stays) {
            let line = if said.is_bad { self.out.paint_error(Style::Yellow, &line) } else { line };
            self.line(&line);
        }
        self.draw();
    }

    fn draw(&self) {
        let Some(bars) = &self.bars else { return };
        let mut lines = vec![self.study.numbers()];
        lines.push(format!("best {}", self.out.paint_error(Style::Green, &self.curve.drawn())));
        let mut table = self.study.table();
        if let Some(header) = table.first_mut() {
            *header = self.out.paint_error(Style::Dim, header);
        }
        lines.extend(table);
        for (bar, line) in bars.lines.iter().zip(lines.into_iter().chain(std::iter::repeat(String::new()))) {
            bar.set_message(line);
        }
    }
}

/// What there is to say of an event.
#[derive(Default)]
struct Said {
    line: Option<String>,
    /// Whether it is worth a line where there is a table too.
    stays: bool,
    is_bad: bool,
    /// The best value so far, once another trial has come to its end.
    curve: Option<f64>,
}

impl Study {
    fn new(detail: &TuneDetail) -> Self {
        let name = |text: &String| text.parse::<Parameter>().ok().map(|parameter| parameter.name);
        Self {
            name: detail.tune.name.clone(),
            goal: detail.tune.goal.clone(),
            direction: detail.tune.direction,
            asked: detail.tune.trials,
            epochs: detail.tune.epochs,
            parameters: detail.search.iter().filter_map(name).collect(),
            trials: BTreeMap::new(),
            best: None,
        }
    }

    fn learn(&mut self, view: &TrialView) {
        let live = Live {
            state: view.state,
            epoch: view.epoch,
            value: view.value,
            cost: view.cost,
            point: view.point.clone(),
        };
        self.trials.entry(view.trial).or_insert(live);
    }

    fn hear(&mut self, event: &TuneEvent) -> Said {
        match event {
            TuneEvent::State { state: TuneState::Running, reason } => {
                let reason = if reason.is_empty() { String::new() } else { format!(": {}", harmless(reason)) };
                Said { line: Some(format!("study `{}` runs{reason}", self.name)), stays: true, ..Said::default() }
            }
            // What it came to is said at the end.
            TuneEvent::State { .. } => Said::default(),
            TuneEvent::Report { trial, epoch, value } => {
                if let Some(live) = self.trials.get_mut(trial) {
                    live.epoch = *epoch;
                    let turned = |value: f64| self.direction.turned(value);
                    live.value = Some(live.value.map_or(*value, |best| turned(turned(best).min(turned(*value)))));
                }
                Said::default()
            }
            TuneEvent::Best { trial, value } => {
                self.best = Some((*trial, *value));
                let point = self.trials.get(trial).map(|live| format!(", {}", shown(&live.point))).unwrap_or_default();
                let line = format!("best so far: {} {value:.4}, trial {trial}{point}", self.goal);
                Said { line: Some(line), stays: true, ..Said::default() }
            }
            TuneEvent::Trial { trial, state, reason, epoch, value, cost, .. } => {
                let live = self.trials.entry(*trial).or_insert(Live {
                    state: *state,
                    epoch: *epoch,
                    value: *value,
                    cost: *cost,
                    point: Point::new(),
                });
                (live.state, live.epoch, live.value, live.cost) = (*state, *epoch, *value, *cost);
                let so_far = value.map_or_else(String::new, |value| format!(": {} {value:.4}", self.goal));
                let after = format!("after epoch {epoch}/{}{so_far}", self.epochs);
                let has_ended =
                    matches!(state, TrialState::Done | TrialState::Pruned | TrialState::Stopped | TrialState::Paused);
                let line = match state {
                    TrialState::Running => Some(format!("trial {trial} runs: {}", shown(&live.point))),
                    TrialState::Failed => Some(format!("trial {trial} failed: {}", harmless(reason))),
                    TrialState::Waiting | TrialState::Pausing | TrialState::Stopping => None,
                    _ => Some(format!("trial {trial} is {} {after}", word(*state))),
                };
                let is_bad = *state == TrialState::Failed;
                let curve = self.best.map(|(_, best)| best).or(*value).filter(|_| has_ended);
                Said { line, stays: is_bad, is_bad, curve }
            }
        }
    }

    fn count(&self, is: impl Fn(TrialState) -> bool) -> usize {
        self.trials.values().filter(|live| is(live.state)).count()
    }

    /// How far it is, in one line.
    fn numbers(&self) -> String {
        let ended = self.count(has_ended);
        let running = self.count(is_running);
        let (paused, failed) = (self.count(|it| it == TrialState::Paused), self.count(|it| it == TrialState::Failed));
        let cost = self.trials.values().fold(0.0, |cost, live| cost + live.cost);
        let mut text = format!("{}: {ended}/{} trials, {running} run", self.name, self.asked);
        if paused > 0 {
            text += &format!(", {paused} paused");
        }
        if failed > 0 {
            text += &format!(", {failed} failed");
        }
        if let Some((trial, value)) = self.best {
            text += &format!(", best {value:.4} (trial {trial})");
        }
        text + &format!(", cost {cost:.6}")
    }

    /// The header and the trials that run and that are best.
    fn table(&self) -> Vec<String> {
        let mut ended: Vec<(&u32, &Live, f64)> = (self.trials.iter())
            .filter(|(_, live)| !is_running(live.state) && live.state != TrialState::Failed)
            .filter_map(|(trial, live)| Some((trial, live, live.value?)))
            .collect();
        ended.sort_by(|a, b| self.direction.turned(a.2).total_cmp(&self.direction.turned(b.2)).then(a.0.cmp(b.0)));
        let ended = ended.into_iter().take(BEST).map(|(trial, live, _)| (trial, live));
        let running = self.trials.iter().filter(|(_, live)| is_running(live.state)).take(RUNNING);
        let rows: Vec<(&u32, &Live)> = ended.chain(running).collect();
        let value = |live: &Live, name: &String| live.point.get(name).map(short).unwrap_or_default();
        let mut columns: Vec<(String, Vec<String>)> = vec![
            ("TRIAL".to_owned(), rows.iter().map(|(trial, _)| trial.to_string()).collect()),
            ("STATE".to_owned(), rows.iter().map(|(_, live)| word(live.state).to_owned()).collect()),
            ("EPOCH".to_owned(), rows.iter().map(|(_, live)| format!("{}/{}", live.epoch, self.epochs)).collect()),
            (
                harmless(&self.goal).to_uppercase(),
                rows.iter().map(|(_, live)| live.value.map_or_else(String::new, |it| format!("{it:.4}"))).collect(),
            ),
        ];
        columns.extend(
            self.parameters.iter().map(|name| (name.clone(), rows.iter().map(|(_, live)| value(live, name)).collect())),
        );
        let mut lines = vec![String::new(); rows.len() + 1];
        let mut used = 0;
        for (header, cells) in columns {
            let width = cells.iter().chain([&header]).map(|cell| cell.chars().count()).max().unwrap_or(0);
            if used + width > WIDTH {
                break;
            }
            used += width + 2;
            for (line, cell) in lines.iter_mut().zip([&header].into_iter().chain(&cells)) {
                *line += &format!("{cell:<width$}  ");
            }
        }
        lines.iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

fn is_running(state: TrialState) -> bool {
    matches!(state, TrialState::Running | TrialState::Pausing | TrialState::Stopping)
}

fn has_ended(state: TrialState) -> bool {
    matches!(state, TrialState::Done | TrialState::Pruned | TrialState::Stopped | TrialState::Failed)
}

pub fn word(state: TrialState) -> &'static str {
    match state {
        TrialState::Waiting => "waiting",
        TrialState::Running => "running",
        TrialState::Pausing => "pausing",
        TrialState::Paused => "paused",
        TrialState::Stopping => "stopping",
        TrialState::Done => "done",
        TrialState::Pruned => "pruned",
        TrialState::Stopped => "stopped",
        TrialState::Failed => "failed",
    }
}

/// `batch=32, lr=0.01234`.
pub fn shown(point: &Point) -> String {
    let pairs: Vec<String> = point.iter().map(|(name, value)| format!("{name}={}", short(value))).collect();
    harmless(&pairs.join(", "))
}

/// A value with so many digits as are worth reading.
pub fn short(value: &Value) -> String {
    let Value::Number(number) = value else { return harmless(&value.to_string()) };
    if *number != 0.0 && !(1e-3..1e5).contains(&number.abs()) {
        return format!("{number:.3e}");
    }
    let text = format!("{number:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> Study {
        Study {
            name: "s".to_owned(),
            goal: "accuracy".to_owned(),
            direction: Direction::Maximise,
            asked: 20,
            epochs: 9,
            parameters: vec!["lr".to_owned(), "hidden".to_owned()],
            trials: BTreeMap::new(),
            best: None,
        }
    }

    fn trial(trial: u32, state: TrialState, epoch: u32, value: Option<f64>) -> TuneEvent {
        let reason = if state == TrialState::Failed { "out of \x1b[2Jmemory".to_owned() } else { String::new() };
        TuneEvent::Trial { trial, state, reason, epoch, until: 9, value, cost: 0.25 }
    }

    /// A study with so many trials, of which the last six run.
    fn busy(count: u32) -> Study {
        let mut study = study();
        for number in 0..count {
            let state = if number + 6 < count { TrialState::Done } else { TrialState::Running };
            study.hear(&trial(number, state, 3, Some(f64::from(number) / 100.0)));
            let live = study.trials.get_mut(&number).unwrap();
            live.point.insert("lr".to_owned(), Value::Number(0.000_123_456));
            live.point.insert("hidden".to_owned(), Value::Integer(256));
        }
        study
    }

    #[test]
    fn an_event_is_a_line() {
        let mut study = study();
        let line = |said: Said| said.line.unwrap_or_default();
        assert_eq!(line(study.hear(&trial(0, TrialState::Waiting, 0, None))), "");
        study.trials.get_mut(&0).unwrap().point.insert("lr".to_owned(), Value::Number(0.012_345_67));
        assert_eq!(line(study.hear(&trial(0, TrialState::Running, 0, None))), "trial 0 runs: lr=0.01235");
        assert_eq!(line(study.hear(&TuneEvent::Report { trial: 0, epoch: 3, value: 0.5 })), "");
        let paused = study.hear(&trial(0, TrialState::Paused, 3, Some(0.5)));
        assert_eq!(line(paused), "trial 0 is paused after epoch 3/9: accuracy 0.5000");
        let best = study.hear(&TuneEvent::Best { trial: 0, value: 0.5 });
        assert_eq!(line(best), "best so far: accuracy 0.5000, trial 0, lr=0.01235");
        let failed = study.hear(&trial(1, TrialState::Failed, 0, None));
        assert!(failed.is_bad && failed.stays);
        assert_eq!(line(failed), "trial 1 failed: out of \\u{1b}[2Jmemory");
        assert_eq!(study.numbers(), "s: 1/20 trials, 0 run, 1 paused, 1 failed, best 0.5000 (trial 0), cost 0.500000");
    }

    #[test]
    fn the_table_has_the_best_and_those_that_run() {
        let table = busy(30).table();
        assert_eq!(table.len(), 1 + BEST + RUNNING);
        assert_eq!(table[0], "TRIAL  STATE    EPOCH  ACCURACY  lr        hidden");
        assert_eq!(table[1], "23     done     3/9    0.2300    1.235e-4  256");
        assert!(table[1 + BEST].starts_with("24     running"), "{table:?}");
        let mut study = busy(30);
        study.direction = Direction::Minimise;
        assert!(study.table()[1].starts_with("0      done"));
    }

    #[test]
    fn the_table_fits_a_usual_terminal_however_many_parameters_there_are() {
        let mut study = busy(30);
        study.parameters = (0..40).map(|number| format!("parameter_{number}")).collect();
        assert!(study.table().iter().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn values_have_as_many_digits_as_are_read() {
        let number = |number: f64| short(&Value::Number(number));
        assert_eq!([number(0.1), number(0.0), number(12.0), number(1e-5)], ["0.1", "0", "12", "1.000e-5"]);
        assert_eq!(short(&Value::Text("a\x1b".to_owned())), "a\\u{1b}");
    }
}
