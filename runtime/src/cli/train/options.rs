//! How to train: what `weft train` and `weft train-local` take alike, and the words of a job that it becomes.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Args;
use weft_core::spec::{EarlyStop, FanOut, K, Keep, Memory, OptimizerKind, OptimizerSpec, Plateau, SyncWords, Workers};
use weft_core::sync::{ChannelKind, OnLoss, Pace, Penalty, RuleKind, Topology};
use weft_gpu::Codec;

use super::planning::Sizes;
use crate::job::JobSpec;
use crate::units::Span;

/// How to train.
#[derive(Clone, Debug, Default, Args)]
pub struct TrainingOptions {
    /// A hyper-parameter of the function; may be given again. Any unknown one lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_value)]
    param: Vec<(String, String)>,
    #[command(flatten)]
    learning: LearningArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    sync: SyncArgs,
    #[command(flatten)]
    ending: EndingArgs,
}

impl TrainingOptions {
    /// Whether it says how much memory a worker has.
    pub fn says_memory(&self) -> bool {
        self.workers.memory.is_some_and(|memory| memory != Sizes::One(Memory::Auto))
    }

    /// Whether it says how often to go through the samples.
    pub fn says_epochs(&self) -> bool {
        self.learning.epochs.is_some()
    }

    /// The same job with what was asked for here, and the rest as it was.
    pub fn over(self, base: JobSpec) -> JobSpec {
        let LearningArgs { epochs, batch, global_batch, batch_schedule, lr, plateau, validate_every, steps } =
            self.learning;
        let WorkerArgs { workers, device, memory, fan_out, stratified, on_loss, straggler, lifetime } = self.workers;
        let EndingArgs { goal_accuracy, goal_loss, early_stop, max_time, checkpoint_every, keep } = self.ending;
        let milliseconds = |span: Option<Span>, before: u64| {
            span.map_or(before, |span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX))
        };
        let mut params = base.params;
        params.extend(self.param);
        JobSpec {
            epochs: epochs.unwrap_or(base.epochs),
            batch: batch.unwrap_or(base.batch),
            global_batch: global_batch.or(base.global_batch),
            lr: lr.unwrap_or(base.lr),
            optimizer: self.optimizer.spec().or(base.optimizer),
            workers: workers.unwrap_or(base.workers),
            sync: self.sync.over(base.sync),
            device: device.unwrap_or(base.device),
            on_loss: on_loss.unwrap_or(base.on_loss),
            straggler_ms: milliseconds(straggler, base.straggler_ms),
            goal_accuracy: goal_accuracy.or(base.goal_accuracy),
            goal_loss: goal_loss.or(base.goal_loss),
            validate_every: validate_every.unwrap_or(base.validate_every),
            early_stop: early_stop.or(base.early_stop),
            plateau: plateau.or(base.plateau),
            batch_schedule: batch_schedule.unwrap_or(base.batch_schedule),
            memory: memory.map_or(base.memory, Sizes::first),
            plan: memory.and_then(Sizes::words).or(base.plan),
            fan_out: fan_out.unwrap_or(base.fan_out),
            lifetime_ms: milliseconds(lifetime, base.lifetime_ms),
            max_time_ms: milliseconds(max_time, base.max_time_ms),
            checkpoint_every: checkpoint_every.unwrap_or(base.checkpoint_every),
            keep: keep.unwrap_or(base.keep),
            stratified: stratified || base.stratified,
            steps: steps.unwrap_or(base.steps),
            params,
            ..base
        }
    }
}

/// How to learn.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Learning")]
struct LearningArgs {
    /// How often to go through the samples [default: 10]
    #[arg(long)]
    epochs: Option<u64>,
    /// Samples of one step of one worker [default: 64]
    #[arg(long)]
    batch: Option<u32>,
    /// Samples of one step of all workers together, so that their number does not change what is learnt
    #[arg(long, value_name = "SAMPLES", conflicts_with = "batch")]
    global_batch: Option<u32>,
    /// Other batch sizes from an epoch on, as in 1:32,5:64
    #[arg(long, value_name = "EPOCH:BATCH,…", value_parser = batch_schedule)]
    batch_schedule: Option<BTreeMap<u64, u32>>,
    /// The learning rate [default: 0.01]
    #[arg(long, value_parser = finite::<f32>)]
    lr: Option<f32>,
    /// Multiply the rate by a factor after more than so many validations that were no better, down to a least rate
    #[arg(long, value_name = "FACTOR,PATIENCE[,MIN]", value_parser = plateau)]
    plateau: Option<Plateau>,
    /// Epochs from one validation to the next; 0 validates only the last [default: 1]
    #[arg(long, value_name = "EPOCHS")]
    validate_every: Option<u64>,
    /// Steps of an epoch, for a function that makes its own samples [default: 100]
    #[arg(long)]
    steps: Option<u64>,
}

/// Who computes, and how they work together.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Workers")]
struct WorkerArgs {
    /// Workers, each with its share of the samples; or a range as in 2..8, to begin with as many as find room [default: 1]
    #[arg(long, value_name = "N|LEAST..MOST")]
    workers: Option<Workers>,
    /// auto, cpu, gpu, or one by name as in gpu:1 [default: auto]
    #[arg(long)]
    device: Option<String>,
    /// Memory of each worker, in its sandbox and on its device together; more is also more of a device's time. `auto`: as
    /// much as it turns out to need; or a range as in 128MiB..1GiB, for a policy to choose from [default: 512MiB; without a
    /// node, a share of half the smallest device]
    #[arg(long, value_name = "SIZE|auto|LEAST..MOST")]
    memory: Option<Sizes>,
    /// Functions that compute a worker's step side by side, a batch each; `epoch`: a call for every batch of an epoch, and
    /// one step [default: 1]
    #[arg(long, value_name = "FUNCTIONS|epoch")]
    fan_out: Option<FanOut>,
    /// Give every worker its share of each class
    #[arg(long)]
    stratified: bool,
    /// `wait` for a lost worker's share, done again to the same bits, or `drop` it from the round [default: wait]
    #[arg(long, value_name = "wait|drop")]
    on_loss: Option<OnLoss>,
    /// Take a worker that has not finished a round by then for lost [default: never]
    #[arg(long, value_name = "SPAN")]
    straggler: Option<Span>,
    /// Replace a function's instance by a fresh one after so long [default: never]
    #[arg(long, value_name = "SPAN")]
    lifetime: Option<Span>,
}

/// What workers exchange, and how. See `docs/strategies.md`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Exchange")]
struct SyncArgs {
    /// What is exchanged: gradient-average, k-average, statistic-sum or admm [default: k-average with `--k`, else what fits
    /// the function]
    #[arg(long)]
    rule: Option<RuleKind>,
    /// For k-average: steps from one average of the weights to the next, `epoch`, `3epochs`, or `end`
    #[arg(long, value_name = "STEPS|epoch|Nepochs|end")]
    k: Option<K>,
    /// Who merges: memory (the node), leader, scatter[:SHARDS], tree[:paper|:1,5,22,100] or peers [default: memory]
    #[arg(long)]
    topology: Option<Topology>,
    /// The layers of a tree, from the root to the workers; short for `--topology tree:LAYERS`
    #[arg(long, value_name = "1,5,22,100", conflicts_with = "topology")]
    tree: Option<String>,
    /// When: barrier, staleness:ROUNDS, on-arrival, overwrite, or quorum:PEERS[,AGE] [default: barrier]
    #[arg(long)]
    pace: Option<Pace>,
    /// Rounds that a worker may be ahead of the slowest; short for `--pace staleness:ROUNDS`
    #[arg(long, value_name = "ROUNDS", conflicts_with = "pace")]
    staleness: Option<u32>,
    /// Peers whose gradients are averaged, at least; short for `--pace quorum:PEERS`
    #[arg(long, value_name = "PEERS", conflicts_with_all = ["pace", "staleness"])]
    quorum: Option<u32>,
    /// With `--quorum`: rounds after which a peer's gradient counts no more [default: never]
    #[arg(long, value_name = "ROUNDS", requires = "quorum")]
    max_age: Option<u32>,
    /// How it is encoded on its way: plain, f16, qsgd:BITS, top-k:FRACTION or significance:THRESHOLD [default: plain]
    #[arg(long)]
    codec: Option<Codec>,
    /// Through what it travels: memory, store (the parameter store) or blobs (the blob store) [default: memory]
    #[arg(long)]
    channel: Option<ChannelKind>,
    /// For admm: how strongly workers are pulled to the model [default: 0.01]
    #[arg(long, value_parser = finite::<f32>)]
    rho: Option<f32>,
    /// For admm: how strongly large weights are penalised [default: 0.01]
    #[arg(long, value_parser = finite::<f32>)]
    lambda: Option<f32>,
    /// For admm: which norm of the weights is penalised [default: l2]
    #[arg(long, value_name = "l1|l2")]
    penalty: Option<Penalty>,
    /// For admm: how often a worker goes through its samples in a round [default: 10]
    #[arg(long, value_name = "EPOCHS")]
    inner_epochs: Option<u32>,
    /// For admm: end the job when workers agree this closely [default: never]
    #[arg(long, value_parser = finite::<f64>)]
    tolerance: Option<f64>,
    /// For admm: weights that are not penalised, beside those that are called `bias`
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    unpenalised: Option<Vec<String>>,
}

impl SyncArgs {
    fn over(self, base: SyncWords) -> SyncWords {
        let tree = self.tree.map(|layers| format!("tree:{layers}"));
        let staleness = self.staleness.map(|rounds| format!("staleness:{rounds}"));
        let quorum = self.quorum.map(|peers| match self.max_age {
            Some(age) => format!("quorum:{peers},{age}"),
            None => format!("quorum:{peers}"),
        });
        let text = |word: &dyn std::fmt::Display| word.to_string();
        SyncWords {
            rule: self.rule.map(|rule| text(&rule)).or(base.rule),
            k: self.k.or(base.k),
            topology: self.topology.map(|topology| text(&topology)).or(tree).or(base.topology),
            pace: self.pace.map(|pace| text(&pace)).or(staleness).or(quorum).or(base.pace),
            codec: self.codec.map(|codec| text(&codec)).or(base.codec),
            channel: self.channel.map(|channel| text(&channel)).or(base.channel),
            rho: self.rho.or(base.rho),
            lambda: self.lambda.or(base.lambda),
            penalty: self.penalty.map(|penalty| text(&penalty)).or(base.penalty),
            inner_epochs: self.inner_epochs.or(base.inner_epochs),
            tolerance: self.tolerance.or(base.tolerance),
            unpenalised: self.unpenalised.or(base.unpenalised),
        }
    }
}

/// The optimizer, instead of the function's own.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Optimizer")]
struct OptimizerArgs {
    /// Use this optimizer instead of the one that the function declares: sgd, adam, adam-w, rms-prop or adagrad
    #[arg(long, value_name = "KIND")]
    optimizer: Option<OptimizerKind>,
    /// Of sgd and rms-prop [default: 0]
    #[arg(long, value_parser = finite::<f32>, requires = "optimizer")]
    momentum: Option<f32>,
    /// Nesterov's momentum, of sgd
    #[arg(long, requires = "optimizer")]
    nesterov: bool,
    /// Of adam and adam-w [default: 0.9]
    #[arg(long, value_parser = finite::<f32>, requires = "optimizer")]
    beta1: Option<f32>,
    /// Of adam and adam-w [default: 0.999], and the decay of rms-prop [default: 0.99]
    #[arg(long, value_parser = finite::<f32>, requires = "optimizer")]
    beta2: Option<f32>,
    #[arg(long, value_parser = finite::<f32>, requires = "optimizer")]
    epsilon: Option<f32>,
    /// How much weights shrink [default: 0]
    #[arg(long, value_parser = finite::<f32>, requires = "optimizer")]
    weight_decay: Option<f32>,
    /// The largest norm that all gradients together may have
    #[arg(long, value_parser = finite::<f32>, requires = "optimizer")]
    clip: Option<f32>,
}

impl OptimizerArgs {
    fn spec(&self) -> Option<OptimizerSpec> {
        Some(OptimizerSpec {
            kind: self.optimizer?,
            momentum: self.momentum,
            nesterov: self.nesterov.then_some(true),
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            clip: self.clip,
        })
    }
}

/// When it is over, and what is left then.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Ending")]
struct EndingArgs {
    /// End when validation accuracy reaches this, as in 0.99
    #[arg(long, value_parser = finite::<f64>, value_name = "SHARE")]
    goal_accuracy: Option<f64>,
    /// End when validation loss falls to this
    #[arg(long, value_parser = finite::<f64>, value_name = "LOSS")]
    goal_loss: Option<f64>,
    /// End after so many validations whose loss did not fall by more than a delta
    #[arg(long, value_name = "PATIENCE[,DELTA]", value_parser = early_stop)]
    early_stop: Option<EarlyStop>,
    /// End after so long, with the model as it is by then
    #[arg(long, value_name = "SPAN")]
    max_time: Option<Span>,
    /// Steps from one checkpoint to the next, besides the one after every epoch
    #[arg(long, value_name = "STEPS")]
    checkpoint_every: Option<u64>,
    /// Which models stay: the `best`, the `last`, or the last so many [default: last]
    #[arg(long, value_name = "best|last|N")]
    keep: Option<Keep>,
}

/// What is learnt, apart from who computes it: what `weft plan` takes of how to train.
#[derive(Clone, Debug, Args)]
pub struct LearningOptions {
    /// A hyper-parameter of the function; may be given again. Any unknown one lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_value)]
    param: Vec<(String, String)>,
    #[command(flatten)]
    learning: LearningArgs,
    #[command(flatten)]
    optimizer: OptimizerArgs,
}

impl LearningOptions {
    /// The same job with what was asked for here, and the rest as it was.
    pub fn over(self, base: JobSpec) -> JobSpec {
        let Self { param, learning, optimizer } = self;
        TrainingOptions { param, learning, optimizer, ..TrainingOptions::default() }.over(base)
    }
}

pub fn name_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A number that is neither `nan` nor infinite: JSON has no word for those, and no use of them makes sense.
pub fn finite<T: FromStr + Copy + Into<f64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<T>().ok().filter(|number| (*number).into().is_finite());
    number.ok_or_else(|| "expected a finite number, as in 0.01".to_owned())
}

/// What stands between commas: so many parts at least and at most, each a number.
fn parts<const MOST: usize>(text: &str, least: usize, expected: &str) -> Result<[Option<f64>; MOST], String> {
    let wrong = || format!("expected {expected}");
    let given: Vec<&str> = text.split(',').map(str::trim).collect();
    if !(least..=MOST).contains(&given.len()) {
        return Err(wrong());
    }
    let mut numbers = [None; MOST];
    for (number, text) in numbers.iter_mut().zip(given) {
        *number = Some(finite(text).map_err(|_| wrong())?);
    }
    Ok(numbers)
}

/// A number of validations.
fn patience(number: Option<f64>) -> Result<u32, String> {
    let number = number.filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
    number.map(|number| number as u32).ok_or_else(|| "the patience must be a whole number of validations".to_owned())
}

fn early_stop(text: &str) -> Result<EarlyStop, String> {
    let [number, delta] = parts(text, 1, "PATIENCE or PATIENCE,DELTA, as in 3,0.001")?;
    Ok(EarlyStop { patience: patience(number)?, delta: delta.unwrap_or(0.0) })
}

fn plateau(text: &str) -> Result<Plateau, String> {
    let [factor, number, min] = parts(text, 2, "FACTOR,PATIENCE or FACTOR,PATIENCE,MIN, as in 0.1,2,0.0001")?;
    let small = |number: Option<f64>| number.unwrap_or(0.0) as f32;
    Ok(Plateau { factor: small(factor), patience: patience(number)?, min: small(min) })
}

fn batch_schedule(text: &str) -> Result<BTreeMap<u64, u32>, String> {
    let mut schedule = BTreeMap::new();
    for entry in text.split(',') {
        let pair = entry
            .split_once(':')
            .and_then(|(epoch, batch)| Some((epoch.trim().parse::<u64>().ok()?, batch.trim().parse::<u32>().ok()?)));
        let (epoch, batch) = pair.ok_or_else(|| format!("`{entry}` is not EPOCH:BATCH, as in 5:64"))?;
        if schedule.insert(epoch, batch).is_some() {
            return Err(format!("epoch {epoch} is there twice"));
        }
    }
    Ok(schedule)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{TrainArgs, word};
    use weft_core::spec::Follow;

    use super::*;
    use crate::job::State;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn spec(line: &str) -> Result<JobSpec, String> {
        let parsed = Line::try_parse_from(["train"].into_iter().chain(line.split_whitespace()));
        parsed.map(|line| line.train.spec()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        assert_eq!(spec("lenet"), Ok(JobSpec::new("lenet", None)));
    }

    #[test]
    fn every_flag_is_a_word_of_the_job() {
        let line = "lenet --dataset digits --name j --epochs 3 --batch 16 --lr 0.5 --workers 4 --rule k-average --k 3epochs \
                    --topology scatter:8 --pace barrier --codec qsgd:4 --channel store --device gpu:0 --on-loss drop --straggler 2s --goal-accuracy 0.9 --goal-loss 0.1 \
                    --validate-every 2 --early-stop 3,0.01 --plateau 0.5,2,0.001 --batch-schedule 1:32,5:64 --seed 7 \
                    --memory 64MiB --fan-out 2 --lifetime 30s --max-time 1h --checkpoint-every 50 --keep 3 \
                    --follow=replay=0.5,epochs=2,idle=1m --init-from m --stratified --steps 9 --param a=1 --param b=x=y \
                    --optimizer sgd --momentum 0.5 --nesterov --weight-decay 0.1 --clip 2";
        let params = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x=y".to_owned())];
        let expected = JobSpec {
            function: "lenet".to_owned(),
            dataset: Some("digits".to_owned()),
            name: Some("j".to_owned()),
            epochs: 3,
            batch: 16,
            lr: 0.5,
            workers: Workers::exactly(4),
            sync: SyncWords {
                rule: Some("k-average".to_owned()),
                k: Some(K::Epochs(3)),
                topology: Some("scatter:8".to_owned()),
                pace: Some("barrier".to_owned()),
                codec: Some("qsgd:4".to_owned()),
                channel: Some("store".to_owned()),
                ..SyncWords::default()
            },
            rule: None,
            k: None,
            pace: None,
            codec: None,
            global_batch: None,
            optimizer: Some(OptimizerSpec {
                momentum: Some(0.5),
                nesterov: Some(true),
                weight_decay: Some(0.1),
                clip: Some(2.0),
                ..OptimizerSpec::new(OptimizerKind::Sgd)
            }),
            device: "gpu:0".to_owned(),
            on_loss: OnLoss::Drop,
            straggler_ms: 2_000,
            goal_accuracy: Some(0.9),
            goal_loss: Some(0.1),
            validate_every: 2,
            early_stop: Some(EarlyStop { patience: 3, delta: 0.01 }),
            plateau: Some(Plateau { factor: 0.5, patience: 2, min: 0.001 }),
            batch_schedule: [(1, 32), (5, 64)].into(),
            seed: Some(7),
            memory: Memory::Bytes(64 << 20),
            fan_out: FanOut::Functions(2),
            lifetime_ms: 30_000,
            max_time_ms: 3_600_000,
            follow: Some(Follow { replay: 0.5, epochs: 2, versions: 0, idle_ms: 60_000 }),
            checkpoint_every: 50,
            keep: Keep::Latest(3),
            init_from: Some("m".to_owned()),
            stratified: true,
            steps: 9,
            plan: None,
            params: params.into(),
            until: None,
        };
        assert_eq!(spec(line), Ok(expected));
    }

    #[test]
    fn short_flags_stand_for_words() {
        let words = |line: &str| spec(line).map(|spec| spec.sync);
        let topology = |word: &str| Ok(SyncWords { topology: Some(word.to_owned()), ..SyncWords::default() });
        let pace = |word: &str| Ok(SyncWords { pace: Some(word.to_owned()), ..SyncWords::default() });
        assert_eq!(words("lenet --tree 1,2,4"), topology("tree:1,2,4"));
        assert_eq!(words("lenet --staleness 2"), pace("staleness:2"));
        assert_eq!(words("lenet --quorum 3"), pace("quorum:3"));
        assert_eq!(words("lenet --quorum 3 --max-age 10"), pace("quorum:3,10"));
        let admm = "lenet --rule admm --rho 0.5 --lambda 0.1 --penalty l1 --inner-epochs 5 --tolerance 0.001 --unpenalised a,b.c";
        let expected = SyncWords {
            rule: Some("admm".to_owned()),
            rho: Some(0.5),
            lambda: Some(0.1),
            penalty: Some("l1".to_owned()),
            inner_epochs: Some(5),
            tolerance: Some(0.001),
            unpenalised: Some(vec!["a".to_owned(), "b.c".to_owned()]),
            ..SyncWords::default()
        };
        assert_eq!(words(admm), Ok(expected));
    }

    #[test]
    fn what_is_no_word_is_refused_with_those_that_are() {
        for (line, expected) in [
            ("lenet --rule mean", "gradient-average"),
            ("lenet --on-loss cry", "wait"),
            ("lenet --k often", "`epoch`"),
            ("lenet --keep some", "`best`"),
            ("lenet --early-stop soon", "3,0.001"),
            ("lenet --early-stop 1.5", "whole number"),
            ("lenet --plateau 0.1", "FACTOR,PATIENCE"),
            ("lenet --batch-schedule 5", "EPOCH:BATCH"),
            ("lenet --batch-schedule 5:1,5:2", "twice"),
            ("lenet --param a", "NAME=VALUE"),
            ("lenet --memory lots", "MiB"),
            ("lenet --lr nan", "finite number"),
            ("lenet --lr inf", "finite number"),
            ("lenet --goal-loss nan", "finite number"),
            ("lenet --goal-accuracy NaN", "finite number"),
            ("lenet --early-stop 3,nan", "3,0.001"),
            ("lenet --plateau nan,3", "FACTOR,PATIENCE"),
            ("lenet --optimizer sgd --momentum nan", "finite number"),
            ("lenet --rho inf", "finite number"),
        ] {
            let error = spec(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        assert_eq!(word::<State>("done"), Ok(State::Done));
    }
}
