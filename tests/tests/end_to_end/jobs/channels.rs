//! Channels that pause, die, forget or refuse, and workers that die in the middle of an exchange: the job ends with the bits
//! of one that nobody disturbed, or waits and says for what.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::JobEventView;
use weft::job::{JobEvent, State};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};
use weft_tests::redis::RedisServer;
use weft_tests::s3::{BUCKET, KEY_ID, Mood, SECRET, Server};

use super::{LONG, lenet, prepare, weights};

/// How long a server is away in the middle of a job. Less than a node waits for one.
const AWAY: Duration = Duration::from_secs(2);
/// Longer than a node waits for a server, and than a job that stands still keeps quiet about it.
const VERY_LONG: Duration = Duration::from_secs(300);
const EPOCHS: u64 = 8;
/// Samples of an epoch of `digits`.
const SAMPLES: u64 = 1_438;

/// What workers exchange, and who merges it.
struct Way {
    name: String,
    sync: Value,
}

fn way(kind: &str, topology: &str) -> Way {
    let mut sync = match kind {
        "gradient" => json!({ "rule": "gradient-average" }),
        "statistic" => json!({ "rule": "statistic-sum" }),
        "admm" => json!({ "rule": "admm", "inner_epochs": 2 }),
        _ => json!({ "rule": "k-average", "k": 3 }),
    };
    sync["topology"] = json!(topology);
    Way { name: format!("{kind}-{}", topology.split(':').next().unwrap_or_default()), sync }
}

/// The functions of other rules than those of lenet. Their epochs are short, so that there are more of them.
fn function_of(way: &Way) -> Option<Value> {
    let (function, params) = match way.sync["rule"].as_str() {
        Some("statistic-sum") => ("kmeans", json!({ "features": 64 })),
        Some("admm") => ("logreg", json!({ "features": 64, "classes": 10 })),
        _ => return None,
    };
    Some(json!({ "function": function, "params": params, "epochs": 60 }))
}

/// Every way where `WEFT_SOAK` is set, and otherwise some of them.
fn ways(some: &[(&str, &str)]) -> Vec<Way> {
    let all = || {
        let topologies = ["memory", "leader", "scatter", "tree:1,2,4", "peers"];
        let kinds = ["gradient", "k", "statistic", "admm"];
        kinds.into_iter().flat_map(move |kind| topologies.map(|topology| way(kind, topology))).collect()
    };
    match std::env::var_os("WEFT_SOAK") {
        Some(_) => all(),
        None => some.iter().map(|(kind, topology)| way(kind, topology)).collect(),
    }
}

fn job(name: &str, way: &Way, channel: &str) -> Value {
    let mut sync = way.sync.clone();
    sync["channel"] = json!(channel);
    let mut spec = lenet(json!({ "name": name, "workers": 4, "epochs": EPOCHS, "sync": sync }));
    if let (Some(spec), Some(Value::Object(more))) = (spec.as_object_mut(), function_of(way)) {
        spec.extend(more);
    }
    spec
}

/// With what every way trains.
fn prepare_all(client: &Client) -> Result<()> {
    prepare(client)?;
    client.must_deploy("kmeans", &component("functions/kmeans")?)?;
    client.must_deploy("logreg", &component("functions/logistic-regression")?)?;
    Ok(())
}

/// Trains undisturbed in memory, and then over a channel that is disturbed after the first epoch: the bits are the same.
fn disturbed(
    client: &Client,
    way: &Way,
    what: &str,
    channel: &str,
    disturb: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let [calm, name] = ["calm", what].map(|what| format!("{what}-{}", way.name));
    if client.get(&format!("/v1/jobs/{calm}"))?.status == 404 {
        client.must_train(&job(&calm, way, "memory"), LONG)?;
    }
    client.must_submit(&job(&name, way, channel))?;
    client.job_until(&name, LONG, |detail| detail.job.epoch >= 1)?;
    disturb(&name).with_context(|| name.clone())?;
    let detail = client.must_finish(&name, VERY_LONG)?;
    ensure!(detail.history.iter().all(|epoch| epoch.samples == SAMPLES), "{name}: {:?}", detail.history);
    ensure!(weights(client, &calm)? == weights(client, &name)?, "{name} has other bits than {calm}");
    Ok(())
}

/// Looks at a job for a while, in which it must not be over.
fn goes_on_for(client: &Client, name: &str, span: Duration) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < span {
        let job = client.job(name)?.job;
        ensure!(!job.state.is_over(), "{job:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn node_with(redis: &RedisServer) -> Result<(Node, Client)> {
    let node = Options::default().dev().set("params-store", redis.address()).start()?;
    let client = node.anybody();
    prepare_all(&client)?;
    Ok((node, client))
}

/// A space without values has no heads in Redis.
fn nothing_is_exchanged_any_more(redis: &RedisServer) -> Result<()> {
    let keys = redis.ask(&["--scan", "--pattern", "*:h:*"])?;
    ensure!(keys.trim().is_empty(), "{keys}");
    Ok(())
}

#[test]
fn a_redis_that_pauses_in_the_middle_changes_no_bit() -> Result<()> {
    let redis = RedisServer::start()?;
    let (_node, client) = node_with(&redis)?;
    for way in ways(&[("gradient", "memory"), ("k", "scatter")]) {
        disturbed(&client, &way, "paused", "store", |name| {
            redis.pause()?;
            goes_on_for(&client, name, AWAY)?;
            redis.go_on()
        })?;
    }
    nothing_is_exchanged_any_more(&redis)
}

#[test]
fn a_redis_that_dies_and_comes_back_with_what_it_had_changes_no_bit() -> Result<()> {
    let mut redis = RedisServer::persistent()?;
    let (_node, client) = node_with(&redis)?;
    for way in ways(&[("gradient", "leader"), ("k", "peers"), ("statistic", "scatter")]) {
        disturbed(&client, &way, "killed", "store", |name| {
            redis.kill()?;
            goes_on_for(&client, name, AWAY)?;
            redis.restart()
        })?;
    }
    nothing_is_exchanged_any_more(&redis)
}

/// The store never begins anew by itself: there may have been more in it than what is exchanged.
#[test]
fn a_job_whose_redis_was_emptied_waits_until_its_tenant_knows_and_changes_no_bit() -> Result<()> {
    let mut redis = RedisServer::start()?;
    let (_node, client) = node_with(&redis)?;
    let port = redis.port().to_string();
    for (number, way) in ways(&[("gradient", "memory"), ("gradient", "tree:1,2,4")]).iter().enumerate() {
        disturbed(&client, way, "emptied", "store", |name| {
            match number % 2 {
                0 => drop(redis.ask(&["FLUSHALL"])?),
                // It keeps nothing when it ends.
                _ => redis.restart()?,
            }
            let waits = |reason: &str| reason.starts_with("waits:") && reason.contains("weft params delete --all");
            let detail = client.job_until(name, LONG, |detail| waits(&detail.job.reason))?;
            ensure!(!detail.job.reason.contains(&port), "where the store is, is nobody's business: {:?}", detail.job);
            ensure!(client.send("DELETE", "/v1/params", &[], b"")?.status == 200);
            Ok(())
        })?;
    }
    nothing_is_exchanged_any_more(&redis)
}

/// The longest wait is for `WEFT_SOAK`: until the job has given up its workers, each of which is patient.
#[test]
fn a_job_whose_redis_stays_away_says_so_and_goes_on_afterwards() -> Result<()> {
    let mut redis = RedisServer::persistent()?;
    let (_node, client) = node_with(&redis)?;
    let port = redis.port().to_string();
    disturbed(&client, &way("gradient", "scatter"), "away", "store", |name| {
        redis.kill()?;
        let says_so = |event: &JobEventView| match &event.event {
            JobEvent::Worker { reason, .. } => reason.contains("the store cannot be reached"),
            _ => false,
        };
        eventually(VERY_LONG, || Ok(client.events(name)?.iter().any(says_so)))?;
        if std::env::var_os("WEFT_SOAK").is_some() {
            client.job_until(name, VERY_LONG, |detail| detail.job.reason.starts_with("waits:"))?;
        }
        let told = format!("{:?} {:?}", client.job(name)?.job, client.events(name)?);
        ensure!(!told.contains(&port), "where the store is, is nobody's business: {told}");
        redis.restart()
    })?;
    nothing_is_exchanged_any_more(&redis)
}

fn node_with_bucket(bucket: &Server) -> Result<(Node, Client)> {
    let node = Options::default()
        .dev()
        .set("blob-store", format!("s3://{BUCKET}/node"))
        .set("s3-endpoint", bucket.endpoint())
        .with("AWS_ACCESS_KEY_ID", KEY_ID)
        .with("AWS_SECRET_ACCESS_KEY", SECRET)
        .start()?;
    let client = node.anybody();
    prepare_all(&client)?;
    Ok((node, client))
}

#[test]
fn a_bucket_that_refuses_what_is_exchanged_is_waited_for_and_changes_no_bit() -> Result<()> {
    let bucket = Server::start()?;
    let (_node, client) = node_with_bucket(&bucket)?;
    for way in ways(&[("k", "memory"), ("k", "scatter"), ("admm", "leader")]) {
        disturbed(&client, &way, "refused", "blobs", |name| {
            bucket.refuse_puts(vec!["/scratch/".to_owned()]);
            let detail = client.job_until(name, VERY_LONG, |detail| detail.job.reason.starts_with("waits:"))?;
            ensure!(matches!(detail.job.state, State::Queued | State::Running), "{:?}", detail.job);
            bucket.refuse_puts(Vec::new());
            Ok(())
        })?;
    }
    let left: Vec<String> = bucket.keys()?.into_iter().filter(|key| key.contains("/scratch/")).collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[test]
fn a_bucket_that_is_busy_or_breaks_connections_changes_no_bit() -> Result<()> {
    let bucket = Server::start()?;
    let (_node, client) = node_with_bucket(&bucket)?;
    for way in ways(&[("k", "leader")]) {
        for (what, mood) in [("busy", Mood::Busy(20)), ("mute", Mood::Mute(10))] {
            disturbed(&client, &way, what, "blobs", |_| {
                bucket.set_mood(mood);
                Ok(())
            })?;
            bucket.set_mood(Mood::Fine);
        }
    }
    Ok(())
}

/// Kills workers after the first epochs, which must all be of a job that goes on longer.
fn kill_some(client: &Client, name: &str) -> Result<()> {
    for (epoch, worker) in [(1, 0), (2, 3), (3, 1)] {
        client.job_until(name, LONG, |detail| detail.job.epoch >= epoch)?;
        let killed = client.order(name, &format!("workers/{worker}/kill"))?;
        ensure!(killed.status == 204, "{killed:?}");
    }
    Ok(())
}

#[test]
fn workers_that_die_change_no_bits_whatever_is_encoded() -> Result<()> {
    let (_node, client) = super::node()?;
    for (number, codec) in ["f16", "qsgd:4", "top-k:0.1", "significance:0.01"].into_iter().enumerate() {
        for kind in ["gradient", "k"] {
            let topology = ["memory", "leader", "scatter", "tree:1,2,4", "peers"][(number + kind.len()) % 5];
            let mut way = way(kind, topology);
            way.sync["codec"] = json!(codec);
            way.name = format!("{}-{}", way.name, codec.split(':').next().unwrap_or_default());
            disturbed(&client, &way, "dying", "store", |name| kill_some(&client, name))?;
        }
    }
    Ok(())
}

#[test]
fn workers_that_die_change_no_bits_of_what_is_counted_or_agreed_on() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare_all(&client)?;
    for topology in ["memory", "leader", "scatter", "tree:1,2,4", "peers"] {
        let word = topology.split(':').next().unwrap_or_default();
        for (function, sync) in [
            ("kmeans", json!({ "rule": "statistic-sum", "topology": topology })),
            ("logreg", json!({ "rule": "admm", "inner_epochs": 2, "topology": topology })),
        ] {
            let params = match function {
                "kmeans" => json!({ "features": 64 }),
                _ => json!({ "features": 64, "classes": 10 }),
            };
            let job = |name: &str, channel: &str| {
                let mut sync = sync.clone();
                sync["channel"] = json!(channel);
                let spec = json!({
                    "name": name, "function": function, "workers": 4, "epochs": 60, "params": params, "sync": sync,
                });
                lenet(spec)
            };
            let [calm, dying] = ["calm", "dying"].map(|what| format!("{what}-{function}-{word}"));
            client.must_train(&job(&calm, "memory"), LONG)?;
            // A tree adds in another order.
            if word != "tree" {
                let first = weights(&client, &format!("calm-{function}-memory"))?;
                ensure!(weights(&client, &calm)? == first, "{calm} has other bits than the coordinator's merge");
            }
            client.must_submit(&job(&dying, "store"))?;
            kill_some(&client, &dying)?;
            let detail = client.must_finish(&dying, LONG)?;
            ensure!(detail.losses == 3, "{dying}: {} losses", detail.losses);
            ensure!(weights(&client, &calm)? == weights(&client, &dying)?, "{dying} has other bits than {calm}");
        }
    }
    Ok(())
}

#[test]
fn workers_that_die_without_a_barrier_lose_no_sample_and_count_none_twice() -> Result<()> {
    let (_node, client) = super::node()?;
    for (name, sync) in [
        ("on-arrival", json!({ "pace": "on-arrival" })),
        ("on-arrival-top-k", json!({ "pace": "on-arrival", "codec": "top-k:0.2" })),
        ("staleness", json!({ "pace": "staleness:2" })),
        ("staleness-qsgd", json!({ "pace": "staleness:2", "codec": "qsgd:8" })),
        ("overwrite", json!({ "pace": "overwrite", "k": 4 })),
        ("quorum", json!({ "pace": "quorum:3,10" })),
        ("quorum-f16", json!({ "pace": "quorum:2", "codec": "f16" })),
    ] {
        for on_loss in ["wait", "drop"] {
            let name = format!("{name}-{on_loss}");
            let spec = json!({
                "name": name, "workers": 4, "epochs": EPOCHS, "lr": 0.005, "sync": sync, "on_loss": on_loss,
            });
            client.must_submit(&lenet(spec))?;
            kill_some(&client, &name)?;
            let detail = client.must_finish(&name, LONG)?;
            ensure!(detail.losses == 3, "{name}: {} losses", detail.losses);
            let samples: Vec<u64> = detail.history.iter().map(|epoch| epoch.samples).collect();
            let is_right = |samples: &u64| if on_loss == "wait" { *samples == SAMPLES } else { *samples <= SAMPLES };
            ensure!(samples.len() as u64 == EPOCHS && samples.iter().all(is_right), "{name}: {samples:?}");
        }
    }
    Ok(())
}
