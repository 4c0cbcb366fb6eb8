//! Does a harm over and over on a node of its own, beside a tenant that does none, and keeps what was seen of it.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use weft::api::types::{NodeView, TenantView};
use weft::logs::LogLine;
use weft_tests::components;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually, in_use};

use super::harm::{Harm, Outcome};

/// Who does harm at once: as many as there are cores on a small machine.
const ATTACKERS: usize = 2;
/// An attack lasts at least this long, so that there is something to be affected by. Quick harms are done more often.
const ATTACK: Duration = Duration::from_millis(500);
/// How long a node may take to have everything back.
const SETTLE: Duration = Duration::from_secs(10);
/// What an invocation of somebody else may take: nineteen of twenty, and every one. Alone it takes under a millisecond,
/// beside most harms two; the rest is for a machine that has other work as well.
const NEIGHBOUR_P95: Duration = Duration::from_millis(250);
const NEIGHBOUR_WORST: Duration = Duration::from_secs(5);
/// By how much resident memory may differ after any number of repetitions: allocators and caches are not exact, but they
/// have an end.
const RESIDENT_SLACK: u64 = 8 << 20;
/// Connections that clients may keep open in the end and did not in the beginning.
const DESCRIPTOR_SLACK: usize = 6;

const FUNCTION: &str = "harm";

/// What the caller was told.
#[derive(Debug)]
struct Told {
    status: u16,
    kind: Option<String>,
    limit: Option<String>,
    text: String,
}

/// What the process of the node holds.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub resident: u64,
    pub descriptors: usize,
}

/// Everything that was seen of one harm.
pub struct Seen {
    harm: Harm,
    told: Vec<Told>,
    before: TenantView,
    after: TenantView,
    log: Vec<LogLine>,
    neighbours: Vec<Result<Duration, String>>,
    node: NodeView,
    newcomer: Result<(), String>,
    staged: Vec<String>,
    held_before: Held,
    held_after: Held,
}

impl Seen {
    /// Looks once, however many tests ask.
    pub fn once(
        place: &'static OnceLock<Result<Self, String>>,
        harm: impl FnOnce() -> Result<Harm>,
    ) -> Result<&'static Self> {
        let look = || harm().and_then(Self::look).map_err(|error| format!("{error:#}"));
        place.get_or_init(look).as_ref().map_err(|error| anyhow!("{error}"))
    }

    fn look(harm: Harm) -> Result<Self> {
        let options = harm.flags.iter().fold(Options::default(), |options, (flag, value)| options.set(flag, value));
        let node = options.start()?;
        let attacker = node.tenant("attacker", harm.quota.clone())?;
        let neighbour = node.tenant("neighbour", json!({}))?;
        neighbour.must_deploy("echo", &components::echo()?)?;
        if harm.body.is_some() {
            attacker.must_deploy(FUNCTION, &harm.upload)?;
        }
        // Pools, caches and threads get their size.
        neighbour.must_invoke("echo", "hello")?;
        attack(&attacker, &harm, harm.times.div_ceil(2))?;
        node.idle(SETTLE)?;

        let held_before = Held::now(&node)?;
        let before = attacker.usage()?;
        let (told, neighbours) = beside(&neighbour, || attack(&attacker, &harm, harm.times))?;
        // What is not idle in the end is for the test of that to say.
        node.idle(SETTLE).ok();
        let held_after = Held::back_to(held_before, RESIDENT_SLACK, &node)?;
        let after = attacker.usage()?;
        let log = if harm.body.is_some() { attacker.log(FUNCTION)? } else { Vec::new() };
        let staged = staged(&node.data_dir())?;
        let view = node.view()?;
        let newcomer = newcomer(&node).map_err(|error| format!("{error:#}"));
        Ok(Self { harm, told, before, after, log, neighbours, node: view, newcomer, staged, held_before, held_after })
    }

    pub fn the_caller_is_told(&self) -> Result<()> {
        for told in &self.told {
            let as_expected = match self.harm.outcome {
                Outcome::Answer(text) => told.status == 200 && told.text.contains(text),
                Outcome::Problem { status, kind, limit, detail } => {
                    (told.status, told.kind.as_deref(), told.limit.as_deref()) == (status, Some(kind), limit)
                        && told.text.contains(detail)
                }
            };
            ensure!(as_expected, "expected {:?}, the caller was told {told:?}", self.harm.outcome);
        }
        Ok(())
    }

    pub fn the_ledger_is_right(&self) -> Result<()> {
        let (before, after) = (&self.before.usage, &self.after.usage);
        let times = self.told.len() as u64;
        let (ran, failed) = match (self.harm.body, self.harm.outcome) {
            (None, _) => (0, 0),
            (Some(_), Outcome::Answer(_)) => (times, 0),
            (Some(_), Outcome::Problem { .. }) => (times, times),
        };
        ensure!(after.invocations - before.invocations == ran, "{ran} invocations, {before:?} -> {after:?}");
        ensure!(after.failures - before.failures == failed, "{failed} failures, {before:?} -> {after:?}");
        ensure!(after.deploys == before.deploys, "a deploy was charged: {before:?} -> {after:?}");
        if let Some(allowed) = &self.harm.cpu_ms {
            let each = (after.cpu_us - before.cpu_us) as f64 / 1e3 / times as f64;
            let allowed = *allowed.start() as f64..=*allowed.end() as f64;
            ensure!(allowed.contains(&each), "{each} ms of CPU for each invocation, not {allowed:?}");
        }
        if let Some(allowed) = &self.harm.log_bytes {
            let each = (after.log_bytes - before.log_bytes) / times;
            ensure!(allowed.contains(&each), "{each} bytes of log for each invocation, not {allowed:?}");
        }
        ensure!(self.after.now.memory == 0, "memory is still charged: {:?}", self.after.now);
        Ok(())
    }

    pub fn only_what_was_accepted_is_stored(&self) -> Result<()> {
        // The component, and the native code that it was compiled to.
        let deployed = self.before.now.stored_bytes;
        ensure!(self.harm.body.is_none() || deployed > self.harm.upload.len() as u64, "only {deployed} bytes");
        let expected = match self.harm.body {
            Some(_) => (1, deployed),
            None => (0, 0),
        };
        let now = &self.after.now;
        ensure!((now.functions, now.stored_bytes) == expected, "{now:?} and not {expected:?}");
        ensure!(self.staged.is_empty(), "left in staging: {:?}", self.staged);
        Ok(())
    }

    pub fn the_log_says_what_it_should(&self) -> Result<()> {
        let Some(text) = self.harm.log else { return Ok(()) };
        ensure!(self.log.iter().any(|line| line.message.contains(text)), "`{text}` is not in {:?}", self.log.last());
        Ok(())
    }

    pub fn other_tenants_go_on(&self) -> Result<()> {
        let mut latencies = Vec::new();
        for outcome in &self.neighbours {
            latencies.push(outcome.clone().map_err(|error| anyhow!("an invocation beside it failed: {error}"))?);
        }
        latencies.sort();
        ensure!(latencies.len() >= 20, "only {} invocations were seen beside it", latencies.len());
        let (p95, worst) = (latencies[latencies.len() * 95 / 100], latencies[latencies.len() - 1]);
        println!("{} invocations beside it: p95 {p95:?}, worst {worst:?}", latencies.len());
        ensure!(p95 <= NEIGHBOUR_P95, "p95 of {} invocations beside it is {p95:?}", latencies.len());
        ensure!(worst <= NEIGHBOUR_WORST, "one of {} invocations beside it took {worst:?}", latencies.len());
        Ok(())
    }

    pub fn the_node_is_healthy_afterwards(&self) -> Result<()> {
        let NodeView { instances, waiting, draining, .. } = self.node;
        ensure!((instances, waiting, in_use(&self.node), draining) == (0, 0, 0, false), "{:?}", self.node);
        self.newcomer.clone().map_err(|error| anyhow!("a newcomer cannot work: {error}"))
    }

    pub fn nothing_leaks(&self) -> Result<()> {
        let (before, after) = (self.held_before, self.held_after);
        println!("{} times: {before:?} -> {after:?}", self.told.len());
        after.is_no_more_than(before, RESIDENT_SLACK)
    }
}

impl Held {
    pub fn now(node: &Node) -> Result<Self> {
        Ok(Self { resident: node.resident()?, descriptors: node.descriptors()? })
    }

    /// What the node holds when it has come back to `before`, or has had long enough to.
    pub fn back_to(before: Self, resident_slack: u64, node: &Node) -> Result<Self> {
        eventually(SETTLE, || Ok(Self::now(node)?.is_no_more_than(before, resident_slack).is_ok())).ok();
        Self::now(node)
    }

    pub fn is_no_more_than(self, before: Self, resident_slack: u64) -> Result<()> {
        ensure!(self.resident <= before.resident + resident_slack, "resident memory: {before:?} -> {self:?}");
        ensure!(self.descriptors <= before.descriptors + DESCRIPTOR_SLACK, "descriptors: {before:?} -> {self:?}");
        Ok(())
    }
}

impl Told {
    fn new(answer: &Answer) -> Result<Self> {
        if answer.status < 400 {
            let text = answer.text().chars().take(200).collect();
            return Ok(Self { status: answer.status, kind: None, limit: None, text });
        }
        let (kind, limit) = answer.problem_kind()?;
        Ok(Self { status: answer.status, kind: Some(kind), limit, text: answer.problem()?.detail })
    }
}

/// Does a harm once.
fn strike(attacker: &Client, harm: &Harm) -> Result<Told> {
    let answer = match harm.body {
        Some(body) => attacker.invoke(FUNCTION, body.as_bytes())?,
        None => attacker.deploy(FUNCTION, &harm.upload)?,
    };
    Told::new(&answer)
}

/// Does a harm from several sides, at least `times` times.
fn attack(attacker: &Client, harm: &Harm, times: usize) -> Result<Vec<Told>> {
    let (begun, start) = (AtomicUsize::new(0), Instant::now());
    let strikes = || -> Result<Vec<Told>> {
        let mut told = Vec::new();
        while begun.fetch_add(1, Relaxed) < times || start.elapsed() < ATTACK {
            told.push(strike(attacker, harm)?);
        }
        Ok(told)
    };
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..ATTACKERS).map(|_| scope.spawn(strikes)).collect();
        let mut told = Vec::new();
        for attacker in attackers {
            told.extend(attacker.join().map_err(|_| anyhow!("an attacker panicked"))??);
        }
        Ok(told)
    })
}

/// Invokes `echo` while something else goes on, and keeps how long each took.
fn beside<T>(neighbour: &Client, something: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Result<Duration, String>>)> {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let mut outcomes = Vec::new();
            loop {
                let start = Instant::now();
                let answer = neighbour.must_invoke("echo", "hello");
                outcomes.push(match answer {
                    Ok(text) if text == "hello" => Ok(start.elapsed()),
                    Ok(text) => Err(format!("it answered `{text}`")),
                    Err(error) => Err(format!("{error:#}")),
                });
                // A steady customer rather than an attack of its own.
                if is_done.recv_timeout(Duration::from_millis(2)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    return outcomes;
                }
            }
        });
        let outcome = something();
        drop(done);
        let neighbours = echo.join().map_err(|_| anyhow!("the neighbour panicked"))?;
        Ok((outcome?, neighbours))
    })
}

/// What lies in the staging folder when it has had time to become empty.
fn staged(data: &Path) -> Result<Vec<String>> {
    let list = || -> Result<Vec<String>> {
        let entries = std::fs::read_dir(data.join("staging")).context("the staging folder")?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    eventually(SETTLE, || Ok(list()?.is_empty())).ok();
    list()
}

/// Somebody new finds a node that is alive, ready, and works.
fn newcomer(node: &Node) -> Result<()> {
    for path in ["/livez", "/readyz"] {
        let answer = node.anybody().get(path)?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
    }
    let newcomer = node.tenant("newcomer", json!({}))?;
    newcomer.must_deploy("echo", &components::echo()?)?;
    let answer = newcomer.must_invoke("echo", "anybody there?")?;
    ensure!(answer == "anybody there?", "it answered `{answer}`");
    Ok(())
}
