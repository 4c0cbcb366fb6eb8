//! A job's progress: a bar and its curves in a terminal, lines elsewhere. All of it on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};
use weft_core::plan::policy::Action;

use crate::cli::output::{Output, Style, bytes, harmless};
use crate::job::{EpochRecord, JobEvent, PlanStep, Progress, Reshaped, State};
use crate::names::Name;

/// Characters of a curve.
const CURVE: usize = 32;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub struct Screen<'a> {
    name: &'a Name,
    out: &'a Output,
    bars: Option<Bars>,
    epochs: u64,
    /// The last epoch that was shown: a node that starts again tells of all of them again.
    epoch: u64,
    /// When progress was first heard of, and how far it was then.
    since: Option<(Instant, f64)>,
    accuracy: Option<f64>,
    losses: Curve,
    accuracies: Curve,
}

struct Bars {
    all: MultiProgress,
    bar: ProgressBar,
    curves: ProgressBar,
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        let style = |text: &str| ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = all.add(ProgressBar::new(0).with_style(style("{prefix} [{bar:16}] {pos}/{len} {wide_msg}")));
        let curves = all.add(ProgressBar::new(0).with_style(style("{wide_msg}")));
        Self { all, bar, curves }
    }
}

impl<'a> Screen<'a> {
    pub fn new(name: &'a Name, epochs: u64, out: &'a Output) -> Self {
        let bars = (!out.is_quiet() && std::io::stderr().is_terminal()).then(Bars::new);
        Self {
            name,
            out,
            bars,
            epochs,
            epoch: 0,
            since: None,
            accuracy: None,
            losses: Curve::default(),
            accuracies: Curve::default(),
        }
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

    pub fn show(&mut self, event: &JobEvent) {
        match event {
            JobEvent::State { state, .. } if state.is_over() => {}
            JobEvent::State { state, reason } => {
                let name = self.name;
                let reason = if reason.is_empty() { String::new() } else { format!(": {}", harmless(reason)) };
                self.line(&format!(
                    "job `{name}` {}{reason}",
                    match state {
                        State::Running => "runs",
                        State::Waiting => "has caught up",
                        _ => "is queued",
                    }
                ));
            }
            JobEvent::Progress(progress) => self.progress(progress),
            JobEvent::Epoch(record) => self.epoch(record),
            JobEvent::Ready { workers, ms } => {
                let plural = if *workers == 1 { "" } else { "s" };
                self.line(&format!("{workers} worker{plural} ready after {ms:.1} ms"));
            }
            JobEvent::Worker { worker, reason } => {
                let word = self.out.paint_error(Style::Yellow, "lost:");
                self.line(&format!("{word} worker {worker}: {}", harmless(reason)));
            }
            JobEvent::Checkpoint { .. } => {}
            JobEvent::Plan(plan) => self.plan(plan),
            JobEvent::Reshaped(Reshaped { workers, memory, batch, .. }) => {
                let plural = if *workers == 1 { "" } else { "s" };
                self.line(&format!("{workers} worker{plural} from now on, {} each, batch {batch}", bytes(*memory)));
            }
        }
    }

    /// What was decided.
    fn plan(&self, plan: &PlanStep) {
        let PlanStep { step, workers, memory, spent, decision } = plan;
        let what = match decision.action {
            Action::Keep => "stay at",
            Action::Reshape(_) if decision.is_probe => "try",
            Action::Reshape(_) => "go on with",
            Action::Stop => "end with",
        };
        let word = self.out.paint_error(Style::Green, "plan:");
        self.line(&format!(
            "{word} after step {step}, for {:.6}: {what} {workers} x {}. {}",
            spent.cost,
            bytes(*memory),
            harmless(&decision.why)
        ));
    }

    fn progress(&mut self, progress: &Progress) {
        self.losses.push(progress.loss);
        // A job that follows its data set has more of them with every version.
        self.epochs = self.epochs.max(progress.epoch);
        let Some(bars) = &self.bars else { return };
        let steps = progress.steps.max(1);
        let done = (progress.epoch.saturating_sub(1) as f64 + progress.step as f64 / steps as f64) / self.epochs as f64;
        let (start, before) = *self.since.get_or_insert((Instant::now(), done));
        let left = (done > before).then(|| start.elapsed().as_secs_f64() * (1.0 - done) / (done - before));
        let left = left.and_then(|left| Duration::try_from_secs_f64(left.max(0.0)).ok());
        let left = left.map_or_else(String::new, |left| {
            format!(", {:#} left", HumanDuration(Duration::from_secs(left.as_secs())))
        });
        let accuracy = self.accuracy.map_or_else(String::new, |accuracy| format!(", accuracy {accuracy:.4}"));
        bars.bar.set_length(steps);
        bars.bar.set_position(progress.step);
        bars.bar.set_prefix(format!("epoch {}/{}", progress.epoch, self.epochs));
        bars.bar.set_message(format!(
            "loss {:.4}{accuracy}, {:.0} samples/s{left}",
            progress.loss, progress.samples_per_second
        ));
        self.draw();
    }

    fn epoch(&mut self, record: &EpochRecord) {
        if record.epoch <= self.epoch {
            return;
        }
        self.epoch = record.epoch;
        self.epochs = self.epochs.max(record.epoch);
        if let Some(&accuracy) = record.validation.get("accuracy") {
            self.accuracy = Some(accuracy);
            self.accuracies.push(accuracy);
        }
        self.line(&epoch_line(
            (record.epoch, self.epochs),
            record.train_loss,
            &record.validation,
            record.samples_per_second,
            record.seconds,
        ));
        self.draw();
    }

    fn draw(&self) {
        let Some(bars) = &self.bars else { return };
        let mut text = format!("loss {}", self.out.paint_error(Style::Yellow, &self.losses.drawn()));
        if !self.accuracies.is_empty() {
            text += &format!("  accuracy {}", self.out.paint_error(Style::Green, &self.accuracies.drawn()));
        }
        bars.curves.set_message(text);
    }
}

/// What an epoch came to, in one line. The epoch is `(this, of all)`.
fn epoch_line(
    (epoch, epochs): (u64, u64),
    train_loss: f64,
    validation: &BTreeMap<String, f64>,
    samples_per_second: f64,
    time: f64,
) -> String {
    let metrics: String =
        validation.iter().map(|(name, value)| format!(", validation {} {value:.4}", harmless(name))).collect();
    format!(
        "epoch {epoch}/{epochs}: loss {train_loss:.4}{metrics}, {samples_per_second:.0} samples/s, {}",
        seconds(time)
    )
}

/// `12.3 s`, `3 min 20 s`, `1 h 05 min`.
pub fn seconds(count: f64) -> String {
    let whole = count.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{count:.1} s"),
        60..3_600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// A curve of all that was pushed, in so many characters: when it is full, two neighbours become one.
#[derive(Default)]
pub struct Curve {
    values: Vec<f64>,
    /// What one value stands for, and what is not one yet.
    each: usize,
    waiting: Vec<f64>,
}

impl Curve {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.waiting.is_empty()
    }

    pub fn push(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.waiting.push(value);
        if self.waiting.len() < self.each.max(1) {
            return;
        }
        self.values.push(mean(&self.waiting));
        self.waiting.clear();
        if self.values.len() > CURVE {
            self.values = self.values.chunks(2).map(mean).collect();
            self.each = self.each.max(1) * 2;
        }
    }

    pub fn drawn(&self) -> String {
        let (low, high) =
            self.values.iter().fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
        let level = |value: &f64| {
            let share = if high > low { (value - low) / (high - low) } else { 0.0 };
            LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
        };
        self.values.iter().map(level).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: impl IntoIterator<Item = f64>) -> Curve {
        let mut curve = Curve::default();
        values.into_iter().for_each(|value| curve.push(value));
        curve
    }

    #[test]
    fn a_curve_goes_from_its_lowest_to_its_highest() {
        assert_eq!(curve([0.0, 1.0, 0.5]).drawn(), "▁█▅");
        assert_eq!(curve([3.0, 3.0, f64::NAN]).drawn(), "▁▁");
        assert_eq!(curve([]).drawn(), "");
    }

    #[test]
    fn a_long_curve_shows_all_of_it_in_a_few_characters() {
        let long = curve((0..10_000).map(f64::from));
        let drawn: Vec<char> = long.drawn().chars().collect();
        assert!(drawn.len() <= CURVE && drawn.len() >= CURVE / 2, "{drawn:?}");
        assert!(drawn.is_sorted() && drawn.first() == Some(&'▁') && drawn.last() == Some(&'█'), "{drawn:?}");
    }

    #[test]
    fn times_are_as_long_as_they_need_to_be() {
        assert_eq!([0.04, 12.34, 200.0, 3_900.0].map(seconds), ["0.0 s", "12.3 s", "3 min 20 s", "1 h 05 min"]);
    }

    #[test]
    fn an_epoch_is_a_line() {
        let validation = [("accuracy".to_owned(), 0.5)].into();
        let line = epoch_line((2, 5), 0.25, &validation, 1_000.4, 1.26);
        assert_eq!(line, "epoch 2/5: loss 0.2500, validation accuracy 0.5000, 1000 samples/s, 1.3 s");
    }
}
