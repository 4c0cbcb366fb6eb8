//! A coverage-guided fuzzer: `make fuzz`.
//!
//! It changes inputs at random, keeps those that reach something that none before has reached, and goes on from them. It is a
//! loop in one process and needs neither another toolchain nor a C++ compiler: what was reached is told by counters that
//! stable rustc can put into the code.
//!
//! An input fails when its target panics (an overflow or a failed assertion too), takes longer than [`LONGEST`], or takes
//! more memory than its target may. It is then kept in a file, and `weft-fuzz TARGET --repeat FILE` runs it again. What ends
//! the process, such as a stack that overflows, leaves the file of the input that was being run.

#![expect(clippy::expect_used, reason = "a tool for developers, which has nobody to answer to")]

mod coverage;
mod memory;
mod mutate;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use fuzz_targets::Target;

use coverage::Coverage;
use mutate::{Noise, mutate};

/// What one input may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Args {
    /// What to fuzz; all of them, one after the other, if none is named
    targets: Vec<String>,
    /// For how long, each
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where inputs that reach something new are kept, and found again
    #[arg(long, default_value = "target/fuzz")]
    folder: PathBuf,
    /// Of the random changes; otherwise another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// Run this input once, and nothing else
    #[arg(long)]
    repeat: Option<PathBuf>,
    /// Name the targets, and do nothing else
    #[arg(long)]
    list: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let known: Vec<&str> = fuzz_targets::all().iter().map(|target| target.name).collect();
    if let Some(unknown) = args.targets.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no target `{unknown}`; there are {}", known.join(", "));
    }
    if args.list {
        known.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let chosen = |target: &Target| args.targets.is_empty() || args.targets.iter().any(|name| name == target.name);
    let targets = fuzz_targets::all().into_iter().filter(chosen);
    if let Some(file) = &args.repeat {
        let input = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        targets.for_each(|target| (target.run)(&input));
        println!("nothing happened");
        return Ok(());
    }
    let seed = args.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as u64
    });
    watch();
    for target in targets {
        Fuzzer::new(target, &args.folder, seed)?.run(Duration::from_secs(args.seconds))?;
    }
    Ok(())
}

/// When the input that is being run was begun, in milliseconds since the start; 0 between two.
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Ends the process when an input never ends.
fn watch() {
    let start = Instant::now();
    START.set(start).expect("called once");
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let began = BEGAN.load(Ordering::Relaxed);
            if began > 0 && start.elapsed() > Duration::from_millis(began) + LONGEST {
                eprintln!("an input takes longer than {LONGEST:?}; it is in the file `running` beside the corpus");
                std::process::exit(1);
            }
        }
    });
}

static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

struct Fuzzer {
    target: Target,
    coverage: Coverage,
    corpus: Vec<Vec<u8>>,
    noise: Noise,
    folder: PathBuf,
    /// The input that is being run: what is left of it if it ends the process.
    running: File,
    runs: u64,
}

impl Fuzzer {
    fn new(target: Target, folder: &Path, seed: u64) -> Result<Self> {
        let coverage = Coverage::new().context("nothing was compiled with counters: run `make fuzz`")?;
        let folder = folder.join(target.name);
        fs::create_dir_all(folder.join("corpus"))?;
        fs::create_dir_all(folder.join("failures"))?;
        let running = File::create(folder.join("running"))?;
        println!("{}: seed {seed}", target.name);
        Ok(Self { target, coverage, corpus: Vec::new(), noise: Noise(seed), folder, running, runs: 0 })
    }

    fn run(mut self, time: Duration) -> Result<()> {
        let start = Instant::now();
        let seeds = (self.target.seeds)().with_context(|| format!("the seeds of `{}`", self.target.name))?;
        let mut first = seeds;
        for entry in fs::read_dir(self.folder.join("corpus"))? {
            first.push(fs::read(entry?.path())?);
        }
        for input in first {
            self.try_input(input, false)?;
        }
        ensure!(!self.corpus.is_empty(), "no seed of `{}` reaches anything", self.target.name);
        while start.elapsed() < time {
            // What was found last leads on most often.
            let count = self.corpus.len();
            let chosen = self.noise.below(count).max(self.noise.below(count));
            let mut input = self.corpus[chosen].clone();
            let other = self.noise.below(count);
            let coverage = &self.coverage;
            let compared = |choice| coverage.comparison(choice);
            mutate(&mut input, &self.corpus[other], self.target.longest, &mut self.noise, compared);
            self.try_input(input, true)?;
        }
        let (reached, all) = self.coverage.reached();
        let rate = self.runs as f64 / start.elapsed().as_secs_f64();
        println!(
            "{}: {} runs, {rate:.0} per second, {reached} of {all} branches, {} inputs kept",
            self.target.name,
            self.runs,
            self.corpus.len()
        );
        Ok(())
    }

    /// Runs an input, and keeps it if it reached something new.
    fn try_input(&mut self, input: Vec<u8>, is_changed: bool) -> Result<()> {
        self.running.write_all_at(&input, 0)?;
        self.running.set_len(input.len() as u64)?;
        let now = START.get().map_or(0, |start| start.elapsed().as_millis() as u64);
        BEGAN.store(now.max(1), Ordering::Relaxed);
        let run = self.target.run;
        let (result, is_new) =
            self.coverage.run(|| panic::catch_unwind(AssertUnwindSafe(|| memory::most_used(|| run(&input)))));
        BEGAN.store(0, Ordering::Relaxed);
        self.runs += 1;
        let reason = match result {
            Err(_) => Some("it panics".to_owned()),
            Ok(used) if used > self.target.memory => Some(format!("it takes {used} bytes of memory")),
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            let file = self.folder.join("failures").join(name_of(&input));
            fs::write(&file, &input)?;
            let (target, file) = (self.target.name, file.display());
            bail!("`{target}` fails, {reason}; to run it again: target/release/weft-fuzz {target} --repeat {file}");
        }
        if is_new {
            if is_changed {
                fs::write(self.folder.join("corpus").join(name_of(&input)), &input)?;
            }
            self.corpus.push(input);
        }
        Ok(())
    }
}

fn name_of(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
