//! Operations that take as long as they are let: they end at their deadline, and nobody else notices much.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::components::component;
use weft_tests::held::Held;
use weft_tests::node::{Options, eventually};

use super::super::super::hostile::ProcessHeld;
use super::{SETTLE, STANDSTILL, beside_bystander, delete_tenant, is_as_it_was, scale};

/// Operations that `make test` tries: one of each kind that was ever long. All of them take a minute.
const SOME_HOGS: [&str; 6] = ["batched-matmul", "max-pool", "nearest", "sparse-matmul", "top-k", "softmax"];

fn hogs_are_cut_short(device: &str) -> Result<()> {
    const WALL: Duration = Duration::from_secs(1);
    let scale = scale();
    let node = Options::default().set("devices", device).start()?;
    let greedy = node.tenant("greedy", json!({ "cpu_ms": 60_000, "wall_ms": WALL.as_millis() as u64 }))?;
    greedy.must_deploy("hog", &component("tests/guests/hog")?)?;
    let all = greedy.must_invoke("hog", "list")?;
    let names = all.lines().filter_map(|line| line.split(' ').next());
    let operations: Vec<&str> = names.filter(|name| scale.is_long || SOME_HOGS.contains(name)).collect();
    ensure!(operations.len() >= SOME_HOGS.len(), "{all}");
    // Code, threads, and on a GPU a device: what is made once is not what hogs leave behind.
    greedy.invoke("hog", b"softmax")?;
    node.idle(SETTLE)?;
    let before = ProcessHeld::now(&node)?;
    let refused = Cell::new(0);
    let rounds = || -> Result<()> {
        let all = (0..scale.rounds).flat_map(|_| &operations);
        all.copied().try_for_each(|operation| {
            let start = Instant::now();
            let answer = greedy.invoke("hog", operation.as_bytes())?;
            // On a GPU some operands are copied before they are used, for which there may be no room; and on a software one,
            // loops that would be too long are refused.
            let reasons = ["out-of-device-memory", "gpu_loop"];
            let says = |reason: &&str| String::from_utf8_lossy(&answer.body).contains(reason);
            let is_refused = device != "cpu" && answer.status == 422 && reasons.iter().any(says);
            ensure!(answer.status == 504 || is_refused, "{operation}: {answer:?}");
            refused.set(refused.get() + usize::from(is_refused));
            let over = start.elapsed().saturating_sub(WALL);
            ensure!(over < STANDSTILL, "{operation} went on for {over:?} after its deadline");
            Ok(())
        })
    };
    let ((), took) = beside_bystander(&node, rounds)?;
    println!("{device}: the bystander had {took}; {} hogs were refused", refused.get());
    ensure!(2 * refused.get() <= scale.rounds * operations.len(), "{} hogs never ran", refused.get());
    took.is_short(STANDSTILL)?;
    is_as_it_was(&node, before)
}

/// Functions of the interface `kernels` that no hog is about, and why none could be.
const NO_HOG: [(&str, &str); 8] = [
    ("permute", "a view"),
    ("transpose", "a view"),
    ("expand", "a view"),
    ("slice", "a view"),
    ("narrow", "a view"),
    ("detach", "the same tensor"),
    (
        "backward",
        "goes back to weights, which only trainers have; what it runs are operations, and tests/stopping stops each",
    ),
    ("gradient", "a handle of what `backward` left"),
];

#[test]
fn every_function_that_computes_is_in_a_hog() -> Result<()> {
    let wit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../wit/kernels.wit"))?;
    let functions = wit.lines().filter_map(|line| Some(line.trim().split_once(": func(")?.0));
    let functions: BTreeSet<&str> = functions.collect();
    ensure!(functions.len() > 50 && functions.contains("matmul"), "wit/kernels.wit is read wrongly: {functions:?}");
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("hog", &component("tests/guests/hog")?)?;
    let all = client.must_invoke("hog", "list")?;
    let about: BTreeSet<&str> = all.lines().flat_map(|line| line.split(' ').skip(1)).collect();
    let excused: BTreeSet<&str> = NO_HOG.iter().map(|(name, _)| *name).collect();
    let covered: BTreeSet<&str> = about.union(&excused).copied().collect();
    let missing: Vec<_> = functions.difference(&covered).collect();
    ensure!(missing.is_empty(), "neither in tests/guests/hog nor excused: {missing:?}");
    let unknown: Vec<_> = covered.difference(&functions).chain(about.intersection(&excused)).collect();
    ensure!(unknown.is_empty(), "no function of wit/kernels.wit, or excused for nothing: {unknown:?}");
    Ok(())
}

#[test]
fn hogs_of_operations_are_cut_short_on_the_cpu() -> Result<()> {
    hogs_are_cut_short("cpu")
}

#[test]
fn hogs_of_operations_are_cut_short_on_a_gpu() -> Result<()> {
    hogs_are_cut_short("gpu:0")
}

/// Long kernels of one tenant, more than there can be turns or threads, and all at once: a bystander and whoever asks whether
/// the node lives notice little. Each kernel lasts for its whole deadline, so a stall would be as long as that.
fn kernels_hold_up_nobody_else(device: &str) -> Result<()> {
    const WALL: Duration = Duration::from_secs(6);
    let node = Options::default().set("devices", device).start()?;
    let greedy = node.tenant("greedy", json!({ "cpu_ms": 60_000, "wall_ms": WALL.as_millis() as u64 }))?;
    greedy.must_deploy("hog", &component("tests/guests/hog")?)?;
    let anybody = node.anybody();
    let hogs = |count: usize| -> Result<Duration> {
        let _held = Held::invoke_all(&greedy, "hog", "softmax", count)?;
        eventually(SETTLE, || Ok(node.view()?.instances >= count.min(4) as u32))?;
        let (start, mut longest) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < WALL / 2 {
            let asked = Instant::now();
            ensure!(anybody.get("/livez")?.status == 200);
            longest = longest.max(asked.elapsed());
        }
        Ok(longest)
    };
    for count in [4, 40] {
        let (livez, took) = beside_bystander(&node, || hogs(count))?;
        println!("{device}: beside {count} hogs /livez took up to {livez:?}, and the bystander had {took}");
        ensure!(livez < WALL / 4, "{count} hogs: /livez took {livez:?}");
        took.is_short(WALL / 4).with_context(|| format!("{count} hogs"))?;
        node.idle(SETTLE)?;
        delete_tenant(&node, "bystander")?;
    }
    Ok(())
}

#[test]
fn many_kernels_at_once_hold_up_nobody_else_on_the_cpu() -> Result<()> {
    kernels_hold_up_nobody_else("cpu")
}

#[test]
fn many_kernels_at_once_hold_up_nobody_else_on_a_gpu() -> Result<()> {
    kernels_hold_up_nobody_else("gpu:0")
}
