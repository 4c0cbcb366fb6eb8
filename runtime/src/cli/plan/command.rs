//! The command line that submits a job: what `weft plan` recommends can be copied and run.

use weft_core::spec::{FanOut, JobSpec, Keep, Memory};
use weft_core::sync::OnLoss;

use crate::units::{Size, Span};

/// The `weft train …` of a job, with a flag for each word that is not the default. Nothing is planned about it but its
/// budget: it is what a plan has led to.
pub fn of(spec: &JobSpec) -> String {
    let plain = JobSpec::new(spec.function.clone(), spec.dataset.clone());
    let mut line = Line(vec!["weft train".to_owned(), quoted(&spec.function)]);
    line.given("dataset", spec.dataset.as_ref());
    line.given("name", spec.name.as_ref());
    line.unless("workers", &spec.workers, &plain.workers);
    if spec.memory != plain.memory {
        match spec.memory {
            Memory::Bytes(bytes) => line.flag("memory", &Size(bytes)),
            Memory::Auto => line.flag("memory", &"auto"),
        }
    }
    if spec.fan_out != FanOut::Functions(1) {
        line.flag("fan-out", &spec.fan_out);
    }
    line.unless("device", &spec.device, &plain.device);
    line.unless("epochs", &spec.epochs, &plain.epochs);
    match spec.global_batch {
        Some(samples) => line.flag("global-batch", &samples),
        None => line.unless("batch", &spec.batch, &plain.batch),
    }
    if !spec.batch_schedule.is_empty() {
        let entries: Vec<String> =
            spec.batch_schedule.iter().map(|(epoch, batch)| format!("{epoch}:{batch}")).collect();
        line.flag("batch-schedule", &entries.join(","));
    }
    line.unless("lr", &spec.lr, &plain.lr);
    line.given("plateau", spec.plateau.map(|it| format!("{},{},{}", it.factor, it.patience, it.min)).as_ref());
    line.unless("validate-every", &spec.validate_every, &plain.validate_every);
    line.unless("steps", &spec.steps, &plain.steps);
    line.optimizer(spec);
    line.sync(spec);
    if spec.on_loss != OnLoss::default() {
        line.flag("on-loss", &"drop");
    }
    line.milliseconds("straggler", spec.straggler_ms);
    line.milliseconds("lifetime", spec.lifetime_ms);
    if spec.stratified {
        line.0.push("--stratified".to_owned());
    }
    line.given("goal-accuracy", spec.goal_accuracy.as_ref());
    line.given("goal-loss", spec.goal_loss.as_ref());
    line.given("early-stop", spec.early_stop.map(|it| format!("{},{}", it.patience, it.delta)).as_ref());
    line.milliseconds("max-time", spec.max_time_ms);
    if spec.checkpoint_every > 0 {
        line.flag("checkpoint-every", &spec.checkpoint_every);
    }
    if spec.keep != Keep::Last {
        line.flag("keep", &spec.keep);
    }
    if let Some(plan) = &spec.plan {
        line.given("budget", plan.budget.as_ref());
    }
    line.given("init-from", spec.init_from.as_ref());
    line.given("seed", spec.seed.as_ref());
    for (name, value) in &spec.params {
        line.flag("param", &format!("{name}={value}"));
    }
    line.0.join(" ")
}

struct Line(Vec<String>);

impl Line {
    fn flag(&mut self, name: &str, value: &dyn std::fmt::Display) {
        self.0.push(format!("--{name} {}", quoted(&value.to_string())));
    }

    fn given<T: std::fmt::Display>(&mut self, name: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.flag(name, value);
        }
    }

    fn unless<T: std::fmt::Display + PartialEq>(&mut self, name: &str, value: &T, default: &T) {
        if value != default {
            self.flag(name, value);
        }
    }

    fn milliseconds(&mut self, name: &str, milliseconds: u64) {
        if milliseconds > 0 {
            self.flag(name, &Span(std::time::Duration::from_millis(milliseconds)));
        }
    }

    fn optimizer(&mut self, spec: &JobSpec) {
        let Some(optimizer) = &spec.optimizer else { return };
        self.flag("optimizer", &optimizer.kind);
        if optimizer.nesterov == Some(true) {
            self.0.push("--nesterov".to_owned());
        }
        for (name, value) in [
            ("momentum", optimizer.momentum),
            ("beta1", optimizer.beta1),
            ("beta2", optimizer.beta2),
            ("epsilon", optimizer.epsilon),
            ("weight-decay", optimizer.weight_decay),
            ("clip", optimizer.clip),
        ] {
            self.given(name, value.as_ref());
        }
    }

    fn sync(&mut self, spec: &JobSpec) {
        let sync = &spec.sync;
        self.given("rule", sync.rule.as_ref());
        self.given("k", sync.k.as_ref());
        self.given("topology", sync.topology.as_ref());
        self.given("pace", sync.pace.as_ref());
        self.given("codec", sync.codec.as_ref());
        self.given("channel", sync.channel.as_ref());
        self.given("rho", sync.rho.as_ref());
        self.given("lambda", sync.lambda.as_ref());
        self.given("penalty", sync.penalty.as_ref());
        self.given("inner-epochs", sync.inner_epochs.as_ref());
        self.given("tolerance", sync.tolerance.as_ref());
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/=+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weft_core::spec::{EarlyStop, K, OptimizerKind, OptimizerSpec, PlanWords, Plateau, SyncWords, Workers};

    use super::*;
    use crate::cli::train::TrainArgs;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn read(line: &str) -> JobSpec {
        let words = line.split(' ').skip(1);
        Command::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).train.spec()
    }

    #[test]
    fn a_command_line_submits_the_same_job() {
        let small = JobSpec::new("lenet", Some("digits".to_owned()));
        assert_eq!(of(&small), "weft train lenet --dataset digits");
        let large = JobSpec {
            name: Some("j".to_owned()),
            epochs: 3,
            lr: 0.5,
            workers: Workers::exactly(4),
            memory: Memory::Bytes(192 << 20),
            global_batch: Some(128),
            sync: SyncWords {
                rule: Some("k-average".to_owned()),
                k: Some(K::Steps(16)),
                topology: Some("scatter:8".to_owned()),
                codec: Some("qsgd:4".to_owned()),
                channel: Some("store".to_owned()),
                ..SyncWords::default()
            },
            device: "gpu:0".to_owned(),
            on_loss: OnLoss::Drop,
            straggler_ms: 2_000,
            lifetime_ms: 30_000,
            max_time_ms: 90_000,
            goal_accuracy: Some(0.9),
            goal_loss: Some(0.1),
            validate_every: 2,
            early_stop: Some(EarlyStop { patience: 3, delta: 0.01 }),
            plateau: Some(Plateau { factor: 0.5, patience: 2, min: 0.001 }),
            batch_schedule: [(1, 32), (5, 64)].into(),
            seed: Some(7),
            fan_out: FanOut::Functions(2),
            checkpoint_every: 50,
            keep: Keep::Latest(3),
            init_from: Some("m".to_owned()),
            stratified: true,
            steps: 9,
            optimizer: Some(OptimizerSpec {
                momentum: Some(0.5),
                nesterov: Some(true),
                weight_decay: Some(0.1),
                clip: Some(2.0),
                ..OptimizerSpec::new(OptimizerKind::Sgd)
            }),
            plan: Some(PlanWords { budget: Some(0.5), ..PlanWords::default() }),
            params: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x=y".to_owned())].into(),
            ..small
        };
        assert_eq!(read(&of(&large)), large);
    }

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        assert_eq!(quoted("a=1"), "a=1");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
