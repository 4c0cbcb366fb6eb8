//! What is still there after the power went, and what never half is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weft_tests::components::{self, marked};
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

/// Kills in one run; `WEFT_SOAK` multiplies them.
const KILLS: u64 = 8;
const DEPLOYERS: usize = 3;

/// A generator for the moments at which nodes are killed. `WEFT_SEED` repeats a run, as far as timing can be repeated.
pub(super) struct Moments(u64);

impl Moments {
    pub(super) fn new() -> Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
        let seed = std::env::var("WEFT_SEED").ok().map_or(Ok(now), |seed| seed.parse())?;
        eprintln!("WEFT_SEED={seed}");
        Ok(Self(seed))
    }

    pub(super) fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % below
    }
}

/// What one client has been told of its function, and what it was waiting to hear.
#[derive(Clone, Default)]
struct Told {
    versions: BTreeSet<String>,
    active: Option<String>,
    /// What would be active if the request in flight was carried out.
    in_flight: Option<String>,
}

/// Deploys new versions and goes back to old ones until the node is gone.
fn deploy_until_killed(tenant: &Client, name: &str, echo: &[u8], mark: &AtomicU64, told: &Mutex<Told>) -> Result<()> {
    let lock = || told.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for round in 0_u64.. {
        let back_to = lock().versions.iter().next().cloned().filter(|_| round % 4 == 3);
        let answer = match &back_to {
            Some(version) => {
                lock().in_flight = Some(version.clone());
                tenant.post(&format!("/v1/functions/{name}/rollback"), &json!({ "to": version }))
            }
            None => {
                let component = marked(echo, mark.fetch_add(1, Relaxed));
                lock().in_flight = Some(weft::digest::Digest::of(&component).to_string());
                tenant.deploy(name, &component)
            }
        };
        // The node is gone: what was in flight stays in flight.
        let Ok(answer) = answer else { return Ok(()) };
        ensure!((200..300).contains(&answer.status), "{answer:?}");
        let mut told = lock();
        let active = told.in_flight.take().context("nothing was in flight")?;
        told.versions.insert(active.clone());
        told.active = Some(active);
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    entries.collect()
}

/// The digests that `blobs/ab/cdef…` or `artifacts/ENGINE/abcdef…` hold.
fn digests(root: &Path, split: bool) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for folder in names(root)? {
        for file in names(&root.join(&folder))? {
            found.insert(format!("sha256:{}{file}", if split { folder.as_str() } else { "" }));
        }
    }
    Ok(found)
}

fn listed(tenant: &Client, name: &str) -> Result<(BTreeSet<String>, Option<String>)> {
    let answer = tenant.get(&format!("/v1/functions/{name}/versions"))?;
    if answer.status == 404 {
        return Ok(Default::default());
    }
    let list = answer.json()?;
    let versions = list["versions"].as_array().context("no versions")?;
    let name = |version: &Value| version["version"].as_str().map(str::to_owned);
    let active = versions.iter().find(|version| version["active"] == true).and_then(name);
    Ok((versions.iter().filter_map(name).collect(), active))
}

/// Compares a node that was killed and started again with what its client was told.
fn is_whole(tenant: &Client, name: &str, told: &mut Told) -> Result<BTreeSet<String>> {
    let (versions, active) = listed(tenant, name)?;
    let lost: Vec<_> = told.versions.difference(&versions).collect();
    ensure!(lost.is_empty(), "`{name}` has lost {lost:?}, which were acknowledged");
    let mut known = told.versions.clone();
    known.extend(told.in_flight.clone());
    let foreign: Vec<_> = versions.difference(&known).collect();
    ensure!(foreign.is_empty(), "`{name}` has {foreign:?}, which nobody deployed");
    let expected = [&told.active, &told.in_flight];
    ensure!(expected.contains(&&active), "`{name}` runs {active:?} instead of one of {expected:?}");
    for version in &versions {
        tenant.post(&format!("/v1/functions/{name}/rollback"), &json!({ "to": version }))?.json()?;
        let answer = tenant.invoke(name, b"whole")?;
        ensure!(answer.text() == "whole" && answer.header("weft-version") == Some(version), "{version}: {answer:?}");
        told.active = Some(version.clone());
    }
    told.in_flight = None;
    told.versions = versions.clone();
    Ok(versions)
}

#[test]
fn a_killed_node_has_every_acknowledged_deploy_and_no_half_one() -> Result<()> {
    let mut moments = Moments::new()?;
    let times: u64 = std::env::var("WEFT_SOAK").ok().map_or(Ok(1), |times| times.parse())?;
    let echo = components::echo()?;
    let mut node = Options::default().start()?;
    let key = node.tenant("one", json!({}))?.key().context("no key")?.to_owned();
    let told: Vec<Arc<Mutex<Told>>> = (0..DEPLOYERS).map(|_| Arc::default()).collect();
    let mark = Arc::new(AtomicU64::new(0));
    for kill in 0..KILLS * times {
        let acknowledged = mark.load(Relaxed);
        let tenant = Client::new(node.url(), Some(&key));
        let deployers: Vec<_> = told
            .iter()
            .enumerate()
            .map(|(index, told)| {
                let (tenant, echo, mark, told) = (tenant.clone(), echo.clone(), mark.clone(), told.clone());
                thread::spawn(move || deploy_until_killed(&tenant, &format!("f{index}"), &echo, &mark, &told))
            })
            .collect();
        eventually(Duration::from_secs(30), || Ok(mark.load(Relaxed) > acknowledged + DEPLOYERS as u64))?;
        thread::sleep(Duration::from_millis(moments.next(400)));
        node = node.kill_and_restart()?;
        let staged = names(&node.data_dir().join("staging"))?;
        ensure!(staged.is_empty(), "after kill {kill}, staging holds {staged:?}");
        for deployer in deployers {
            deployer.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        let tenant = Client::new(node.url(), Some(&key));
        let mut stored = BTreeSet::new();
        let blobs = digests(&node.data_dir().join("blobs"), true)?;
        let artifacts = digests(&node.data_dir().join("artifacts"), false)?;
        for (index, told) in told.iter().enumerate() {
            let mut told = told.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            stored.extend(is_whole(&tenant, &format!("f{index}"), &mut told).with_context(|| format!("kill {kill}"))?);
        }
        ensure!(blobs == stored, "after kill {kill}, blobs and versions differ: {blobs:?} and {stored:?}");
        ensure!(artifacts == stored, "after kill {kill}, artifacts and versions differ: {artifacts:?} and {stored:?}");
    }
    Ok(())
}

#[test]
fn a_killed_node_forgets_at_most_the_last_moments_of_usage() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &components::echo()?)?;
    let start = Instant::now();
    let mut told = Vec::new();
    while start.elapsed() < Duration::from_secs(3) {
        tenant.must_invoke("echo", "count me")?;
        told.push(start.elapsed());
    }
    // Written once a second, and a write takes its time.
    let certain = told.iter().filter(|at| **at + Duration::from_secs(2) < start.elapsed()).count();
    let node = node.kill_and_restart()?;
    let usage = Client::new(node.url(), tenant.key()).get("/v1/usage")?.json()?["usage"].clone();
    let counted = usage["invocations"].as_u64().context("no count")? as usize;
    ensure!((certain..=told.len()).contains(&counted), "{counted} of {}, {certain} of which long ago", told.len());
    Ok(())
}

#[test]
fn an_orderly_stop_forgets_no_usage() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &components::echo()?)?;
    tenant.must_invoke("echo", "count me")?;
    let before = tenant.get("/v1/usage")?.json()?["usage"].clone();
    let node = Options::default().start_in(node.stop()?)?;
    let after = Client::new(node.url(), tenant.key()).get("/v1/usage")?.json()?["usage"].clone();
    ensure!(before == after, "{before} became {after}");
    Ok(())
}

#[test]
fn logs_survive_a_restart() -> Result<()> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("it", &components::stored()?)?;
    node.anybody().must_invoke("it", "log")?;
    let before = node.anybody().get("/v1/functions/it/logs")?.json()?;
    ensure!(before["lines"].as_array().is_some_and(|lines| lines.len() == 4), "{before}");
    let node = Options::default().dev().start_in(node.stop()?)?;
    let after = node.anybody().get("/v1/functions/it/logs")?.json()?;
    ensure!(before == after, "{before} became {after}");
    Ok(())
}

/// The only file below `artifacts/`.
fn artifact(node: &Node) -> Result<PathBuf> {
    let folder = node.data_dir().join("artifacts");
    let engine = folder.join(names(&folder)?.pop().context("no artifacts")?);
    Ok(engine.join(names(&engine)?.pop().context("no artifact")?))
}

fn with_echo() -> Result<Node> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    Ok(node)
}

#[test]
fn a_restart_compiles_nothing() -> Result<()> {
    let node = with_echo()?;
    let path = artifact(&node)?;
    let before = fs::metadata(&path)?;
    let node = node.kill_and_restart()?;
    node.anybody().must_invoke("echo", "at once")?;
    let after = fs::metadata(&path)?;
    ensure!((before.ino(), before.modified()?) == (after.ino(), after.modified()?));
    ensure!(!node.log()?.contains("compiling again"), "{}", node.log()?);
    Ok(())
}

#[test]
fn a_damaged_artifact_is_compiled_again_and_never_run() -> Result<()> {
    let node = with_echo()?;
    let path = artifact(&node)?;
    let good = fs::read(&path)?;
    let mut bad = good.clone();
    // In the middle, where the code is: it would load, and do something else.
    let middle = bad.len() / 2;
    bad[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0xff);
    let folder = node.kill()?;
    fs::write(&path, &bad)?;
    let node = Options::default().dev().start_in(folder)?;
    ensure!(node.anybody().must_invoke("echo", "mended")? == "mended");
    ensure!(fs::read(&path)? != bad, "the damaged artifact is still there");
    Ok(())
}

#[test]
fn a_missing_artifact_is_compiled_again() -> Result<()> {
    let node = with_echo()?;
    let path = artifact(&node)?;
    let folder = node.kill()?;
    fs::remove_file(&path)?;
    let node = Options::default().dev().start_in(folder)?;
    ensure!(node.anybody().must_invoke("echo", "mended")? == "mended");
    ensure!(path.is_file());
    Ok(())
}

#[test]
fn a_component_that_was_changed_on_disk_is_not_compiled() -> Result<()> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &marked(&components::echo()?, 1))?;
    let path = artifact(&node)?;
    let hex = path.file_name().context("no name")?.to_string_lossy().into_owned();
    let blob = node.data_dir().join("blobs").join(&hex[..2]).join(&hex[2..]);
    let folder = node.kill()?;
    fs::remove_file(&path)?;
    fs::write(&blob, marked(&components::echo()?, 2))?;
    let node = Options::default().dev().start_in(folder)?;
    let answer = node.anybody().invoke("echo", b"not me")?;
    ensure!(answer.problem_kind()?.0 == "internal", "{answer:?}");
    ensure!(node.log()?.contains("damaged"), "{}", node.log()?);
    Ok(())
}

#[test]
fn files_that_no_record_names_are_swept_up() -> Result<()> {
    let node = with_echo()?;
    let path = artifact(&node)?;
    let folder = node.kill()?;
    let hex = "ab".repeat(32);
    let strays = [
        path.with_file_name("cd".repeat(32)),
        folder.path().join("data/blobs/ab").join(&hex[2..]),
        folder.path().join("data/staging/upload-x"),
    ];
    for stray in &strays {
        fs::create_dir_all(stray.parent().context("no folder")?)?;
        fs::write(stray, b"left behind")?;
    }
    let node = Options::default().dev().start_in(folder)?;
    let left: Vec<_> = strays.iter().filter(|stray| stray.exists()).collect();
    ensure!(left.is_empty(), "{left:?}");
    ensure!(node.anybody().must_invoke("echo", "kept")? == "kept");
    Ok(())
}

#[test]
fn a_second_node_on_the_same_data_is_refused() -> Result<()> {
    let node = with_echo()?;
    let second = Options::default().dev().start_in(node.folder());
    let error = second.err().context("two nodes on one data directory")?.to_string();
    ensure!(error.contains("in use by another node") && error.contains("--data-dir"), "{error}");
    Ok(())
}

#[test]
fn a_node_does_not_mind_another_that_tries_its_data() -> Result<()> {
    let node = with_echo()?;
    Options::default().dev().start_in(node.folder()).err().context("two nodes on one data directory")?;
    let node = node.kill_and_restart()?;
    ensure!(node.anybody().must_invoke("echo", "mine")? == "mine");
    Ok(())
}

#[test]
fn data_of_another_format_is_refused() -> Result<()> {
    let node = with_echo()?;
    let folder = node.stop()?;
    fs::write(folder.path().join("data/format"), "2\n")?;
    let error = Options::default().dev().start_in(folder).err().context("it started")?.to_string();
    ensure!(error.contains("format \"2\""), "{error}");
    Ok(())
}

#[test]
fn data_without_a_format_is_refused() -> Result<()> {
    let folder = with_echo()?.stop()?;
    fs::remove_file(folder.path().join("data/format"))?;
    let error = Options::default().dev().start_in(folder).err().context("it started")?.to_string();
    ensure!(error.contains("format"), "{error}");
    Ok(())
}

#[test]
fn only_the_owner_can_read_the_data_directory() -> Result<()> {
    let node = Options::default().dev().start()?;
    ensure!(fs::metadata(node.data_dir())?.mode() & 0o777 == 0o700);
    Ok(())
}

#[test]
fn a_new_quota_survives_a_restart() -> Result<()> {
    let node = Options::default().start()?;
    node.tenant("one", json!({}))?;
    let patch = serde_json::to_vec(&json!({ "functions": 7 }))?;
    node.operator()?.send("PATCH", "/v1/tenants/one/quota", &[], &patch)?.json()?;
    let node = node.kill_and_restart()?;
    let tenant = node.operator()?.get("/v1/tenants/one")?.json()?;
    ensure!(tenant["quota"]["functions"] == 7, "{tenant}");
    Ok(())
}

#[test]
fn deleting_a_version_frees_its_files() -> Result<()> {
    let node = Options::default().dev().start()?;
    let echo = components::echo()?;
    let versions: BTreeMap<u64, String> = (0..2)
        .map(|mark| {
            let deployed = node.anybody().must_deploy("echo", &marked(&echo, mark))?;
            Ok((mark, deployed["function"]["version"].as_str().context("no version")?.to_owned()))
        })
        .collect::<Result<_>>()?;
    let path = format!("/v1/functions/echo/versions/{}", versions[&0]);
    node.anybody().send("DELETE", &path, &[], b"")?.json()?;
    let kept = BTreeSet::from([versions[&1].clone()]);
    ensure!(digests(&node.data_dir().join("blobs"), true)? == kept);
    ensure!(digests(&node.data_dir().join("artifacts"), false)? == kept);
    Ok(())
}
