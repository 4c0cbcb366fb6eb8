//! Random combinations of everything that decides how workers work together, from several tenants at once: those that the
//! table allows all end, those that it does not are refused with its reason, and nothing is left behind.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weft::api::types::DeviceList;
use weft_core::sync::combination::{Combination, PaceKind, TopologyKind, check};
use weft_core::sync::{ChannelKind, OnLoss, RuleKind};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

const TENANTS: [&str; 3] = ["one", "two", "three"];
/// Jobs of all tenants together; `WEFT_SOAK` multiplies them.
const JOBS: usize = 200;
const MOST_WORKERS: u32 = 5;
/// Within which everything is given back.
const SETTLE: Duration = Duration::from_secs(20);
/// Jobs of one tenant that all wait for each other.
const ALL_END: Duration = Duration::from_secs(600);

/// Numbers that look random, the same for the same seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.roll() % u64::from(end)) as u32
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }
}

fn any(dice: &mut Dice) -> Combination {
    Combination {
        rule: dice.one_of(RuleKind::ALL),
        topology: dice.one_of(TopologyKind::ALL),
        pace: dice.one_of(PaceKind::ALL),
        is_plain: dice.below(2) == 0,
        channel: dice.one_of(ChannelKind::ALL),
        on_loss: dice.one_of(OnLoss::ALL),
        fans_out: dice.below(3) == 0,
        workers: 1 + dice.below(MOST_WORKERS),
    }
}

fn any_valid(dice: &mut Dice) -> Combination {
    loop {
        let combination = any(dice);
        if check(&combination).is_ok() {
            return combination;
        }
    }
}

/// A job of this combination; what the combination leaves open is drawn.
fn job(combination: &Combination, dice: &mut Dice) -> Value {
    let Combination { rule, topology, pace, is_plain, channel, on_loss, fans_out, workers } = *combination;
    let quorum = 1 + dice.below(workers);
    let mut sync = json!({
        "rule": rule.word(),
        "channel": channel.word(),
        "topology": match topology {
            TopologyKind::Scatter => dice.one_of(&["scatter", "scatter:3", "scatter:8"]).to_owned(),
            TopologyKind::Tree => match dice.below(3) {
                // Layers are of one number of workers, and one worker has none.
                0 if workers > 1 => format!("tree:1,{workers}"),
                1 => "tree:paper".to_owned(),
                _ => "tree".to_owned(),
            },
            other => other.word().to_owned(),
        },
        "pace": match pace {
            PaceKind::Staleness => format!("staleness:{}", 1 + dice.below(3)),
            PaceKind::Quorum if dice.below(2) == 0 => format!("quorum:{quorum}"),
            PaceKind::Quorum => format!("quorum:{quorum},{}", 1 + dice.below(10)),
            other => other.word().to_owned(),
        },
        "codec": match is_plain {
            true => "plain",
            false => dice.one_of(&["f16", "qsgd:2", "qsgd:8", "top-k:0.25", "significance:0.01"]),
        },
    });
    match rule {
        RuleKind::KAverage => sync["k"] = json!(dice.one_of(&["1", "3", "epoch", "2epochs", "end"])),
        RuleKind::Admm => {
            sync["inner_epochs"] = json!(dice.one_of(&[1, 2]));
            sync["penalty"] = json!(dice.one_of(&["l1", "l2"]));
        }
        RuleKind::GradientAverage | RuleKind::StatisticSum => {}
    }
    // As many as find room, where nothing else says how many there must be.
    let is_fixed = pace == PaceKind::Quorum || sync["topology"] == json!(format!("tree:1,{workers}"));
    let workers = match dice.below(4) {
        0 if workers > 1 && !is_fixed => json!(format!("1..{workers}")),
        _ => json!(workers),
    };
    let mut spec = json!({
        "epochs": dice.one_of(&[1, 2, 3]), "workers": workers, "on_loss": on_loss.word(), "sync": sync,
        "seed": dice.below(1_000), "memory": 16 << 20, "lr": 0.01, "batch": 8, "dataset": "bits",
        "params": { "features": 20 }, "fan_out": match fans_out {
            true => dice.one_of(&["2", "3", "epoch"]),
            false => "1",
        },
    });
    match (rule, dice.below(4)) {
        (RuleKind::StatisticSum, _) => spec["function"] = json!("kmeans"),
        (RuleKind::Admm, one) if one < 2 => spec["function"] = json!("svm"),
        // Now and then a model of several layers, whose shards end in the middle of tensors.
        (RuleKind::GradientAverage | RuleKind::KAverage, 0) => {
            spec["function"] = json!("lenet");
            (spec["dataset"], spec["params"], spec["batch"]) = (json!("digits"), json!({}), json!(32));
            spec["memory"] = json!(64 << 20);
        }
        _ => spec["function"] = json!("logreg"),
    }
    spec
}

fn prepare(client: &Client) -> Result<()> {
    for (name, folder) in [("logreg", "logistic-regression"), ("svm", "svm"), ("kmeans", "kmeans"), ("lenet", "lenet")]
    {
        client.must_deploy(name, &component(&format!("functions/{folder}"))?)?;
    }
    let bits = json!({ "synthetic": { "kind": "binary20", "train": 240, "test": 40, "seed": 1 } });
    for (name, spec) in [("bits", bits), ("digits", json!({ "shipped": "digits" }))] {
        let made = client.send("PUT", &format!("/v1/datasets/{name}"), &[], &serde_json::to_vec(&spec)?)?;
        ensure!(made.status == 201, "{made:?}");
    }
    Ok(())
}

/// Submits all jobs, and waits until they have ended well.
fn train_all(client: &Client, jobs: &[Value]) -> Result<()> {
    let names = jobs.iter().map(|spec| client.must_submit(spec)).collect::<Result<Vec<_>>>()?;
    for (name, spec) in names.iter().zip(jobs) {
        client.must_finish(name, ALL_END).with_context(|| spec.to_string())?;
        let history = client.job(name)?.history;
        ensure!(history.iter().all(|epoch| epoch.train_loss.is_finite() && epoch.samples > 0), "{spec}: {history:?}");
    }
    Ok(())
}

/// Files below folders of this name.
fn files_below(folder: &Path, name: &str, is_below: bool) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_named = path.file_name().is_some_and(|found| found == name);
        if path.is_dir() {
            found.extend(files_below(&path, name, is_below || is_named)?);
        } else if is_below {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}

/// Nothing runs, is leased, or lies in a channel any more.
fn nothing_is_left(node: &Node, tenants: &[Client]) -> Result<()> {
    // The parameters of all tenants are part of the node's memory, and so are messages in the embedded store.
    node.idle(SETTLE)?;
    let reserved = || -> Result<u64> {
        let list: DeviceList = serde_json::from_value(node.operator()?.get("/v1/devices")?.json()?)?;
        Ok(list.devices.iter().map(|device| device.reserved).sum())
    };
    eventually(SETTLE, || Ok(reserved()? == 0)).context("devices are still leased")?;
    for tenant in tenants {
        let params = tenant.get("/v1/params")?.json()?;
        ensure!(params["params"] == json!([]) && params["jobs"] == json!([]), "{params}");
    }
    let scratch = files_below(&node.data_dir(), "scratch", false)?;
    ensure!(scratch.is_empty(), "{scratch:?}");
    Ok(())
}

/// Deletes the jobs and models of a tenant; what it stores then.
fn stored_without_jobs(client: &Client) -> Result<u64> {
    client.post("/v1/jobs/prune", &json!({}))?.json()?;
    loop {
        let models = client.get("/v1/models")?.json()?;
        let models = models["models"].as_array().context("no models")?;
        if models.is_empty() {
            return Ok(client.usage()?.now.stored_bytes);
        }
        for name in models.iter().filter_map(|model| model["name"].as_str()) {
            ensure!(client.send("DELETE", &format!("/v1/models/{name}"), &[], b"")?.status == 204, "{name}");
        }
    }
}

#[test]
fn random_valid_combinations_of_three_tenants_all_end_and_leave_nothing() -> Result<()> {
    let seed = match std::env::var("WEFT_COMBINATIONS_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => u64::from(std::process::id()),
    };
    let jobs = JOBS * std::env::var("WEFT_SOAK").map_or(Ok(1), |times| times.parse())?;
    println!("seed {seed}; again with WEFT_COMBINATIONS_SEED={seed}");
    let node = Options::default().start()?;
    let quota = json!({ "jobs": 3, "queued_jobs": 100_000, "workers": 40, "requests_per_second": u32::MAX });
    let tenants = TENANTS.iter().map(|name| node.tenant(name, quota.clone())).collect::<Result<Vec<_>>>()?;
    tenants.iter().try_for_each(prepare)?;
    let before = tenants.iter().map(|tenant| Ok(tenant.usage()?.now.stored_bytes)).collect::<Result<Vec<_>>>()?;
    let mut dice = Dice(seed);
    let specs: Vec<Value> = (0..jobs)
        .map(|_| {
            let combination = any_valid(&mut dice);
            job(&combination, &mut dice)
        })
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let parts = specs.chunks(jobs.div_ceil(tenants.len()));
        let training: Vec<_> =
            tenants.iter().zip(parts).map(|(tenant, part)| scope.spawn(|| train_all(tenant, part))).collect();
        training.into_iter().try_for_each(|tenant| tenant.join().map_err(|_| anyhow!("a tenant panicked"))?)
    })
    .with_context(|| format!("seed {seed}"))?;
    println!("{jobs} jobs took {:?}", start.elapsed());
    nothing_is_left(&node, &tenants)?;
    for (tenant, before) in tenants.iter().zip(before) {
        let after = stored_without_jobs(tenant)?;
        ensure!(after == before, "{after} bytes are stored, and {before} were before all jobs");
    }
    nothing_is_left(&node, &tenants)
}

/// Every combination of two workers that there is a word for.
fn all_of_two_workers() -> Vec<Combination> {
    let mut all = Vec::new();
    for &rule in RuleKind::ALL {
        for &pace in PaceKind::ALL {
            for &topology in TopologyKind::ALL {
                for &channel in ChannelKind::ALL {
                    for &on_loss in OnLoss::ALL {
                        for (is_plain, fans_out) in [(true, false), (true, true), (false, false), (false, true)] {
                            let workers = 2;
                            all.push(Combination {
                                rule,
                                topology,
                                pace,
                                is_plain,
                                channel,
                                on_loss,
                                fans_out,
                                workers,
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

#[test]
fn every_combination_that_the_table_rules_out_is_refused_with_its_reason() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({ "requests_per_second": u32::MAX }))?;
    prepare(&client)?;
    let (mut dice, mut count) = (Dice(1), 0);
    for combination in all_of_two_workers() {
        let Err(refused) = check(&combination) else { continue };
        let answer = client.submit(&job(&combination, &mut dice))?;
        let problem = answer.problem()?;
        ensure!(answer.status == 422 && problem.word.as_deref() == Some(refused.word), "{combination:?}: {problem:?}");
        ensure!(problem.detail.contains(refused.reason), "{combination:?}: {problem:?}");
        count += 1;
    }
    println!("{count} combinations were refused");
    ensure!(count > 1_000, "only {count} were refused");
    let jobs = client.get("/v1/jobs")?.json()?;
    ensure!(jobs["jobs"].as_array().is_some_and(Vec::is_empty), "{jobs}");
    nothing_is_left(&node, &[client])
}
