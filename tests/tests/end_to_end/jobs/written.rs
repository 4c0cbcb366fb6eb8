//! Jobs whose workers share nothing with their engine: every order and every report is written as MessagePack and read again
//! on its way. They end with the bits of jobs that share their numbers.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

use super::{LONG, lenet, prepare, weights};

const CHANNELS: [&str; 3] = ["memory", "store", "blobs"];

fn node(options: Options) -> Result<(Node, Client)> {
    let node = options.dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    for (name, function, set) in [
        ("kmeans", "functions/kmeans", json!({ "synthetic": { "kind": "higgs", "train": 600, "seed": 1 } })),
        (
            "logreg",
            "functions/logistic-regression",
            json!({ "synthetic": { "kind": "binary20", "train": 600, "test": 100, "seed": 1 } }),
        ),
    ] {
        client.must_deploy(name, &component(function)?)?;
        let made = client.send("PUT", &format!("/v1/datasets/{name}"), &[], &serde_json::to_vec(&set)?)?;
        ensure!(made.status == 201, "{made:?}");
    }
    Ok((node, client))
}

/// A node on whose seam everything is written down.
fn writing() -> Result<(Node, Client)> {
    node(Options::default().with("WEFT_TEST_SEAM", "written"))
}

/// Every rule, and what is handed over otherwise because of a topology or a codec, by name.
fn ways() -> Vec<(&'static str, Value, Value)> {
    let lenet = |sync| (lenet(json!({ "workers": 4 })), sync);
    let kmeans = json!({
        "function": "kmeans", "dataset": "kmeans", "epochs": 3, "seed": 3, "workers": 3, "memory": 64 << 20,
    });
    let logreg = json!({
        "function": "logreg", "dataset": "logreg", "workers": 3, "epochs": 8, "batch": 100, "lr": 0.5, "seed": 3,
        "memory": 64 << 20, "params": { "features": 20 },
    });
    let admm =
        |topology| json!({ "rule": "admm", "rho": 0.1, "lambda": 0.001, "inner_epochs": 2, "topology": topology });
    [
        ("gradient", lenet(json!({ "rule": "gradient-average" }))),
        ("gradient-tree", lenet(json!({ "rule": "gradient-average", "topology": "tree" }))),
        ("gradient-peers", lenet(json!({ "rule": "gradient-average", "topology": "peers", "codec": "qsgd:8" }))),
        ("k", lenet(json!({ "k": 5 }))),
        ("k-epochs", lenet(json!({ "k": "2epochs" }))),
        ("k-end", lenet(json!({ "k": "end", "topology": "leader" }))),
        ("k-scatter", lenet(json!({ "k": 5, "topology": "scatter", "codec": "top-k:0.2" }))),
        ("k-coded", lenet(json!({ "k": 5, "codec": "f16" }))),
        ("sum", (kmeans.clone(), json!({ "rule": "statistic-sum" }))),
        ("sum-leader", (kmeans, json!({ "rule": "statistic-sum", "topology": "leader" }))),
        ("admm", (logreg.clone(), admm("memory"))),
        ("admm-scatter", (logreg, admm("scatter"))),
    ]
    .map(|(name, (spec, sync))| (name, spec, sync))
    .into()
}

fn job(name: &str, spec: &Value, sync: &Value, channel: &str) -> Value {
    let (mut spec, mut sync) = (spec.clone(), sync.clone());
    sync["channel"] = json!(channel);
    (spec["name"], spec["sync"]) = (json!(name), sync);
    spec
}

#[test]
fn every_rule_through_every_channel_needs_nothing_that_is_shared() -> Result<()> {
    let ((_plain, sharing), (written, writing)) = (node(Options::default())?, writing()?);
    for (way, spec, sync) in ways() {
        sharing.must_train(&job(way, &spec, &sync, "memory"), LONG)?;
        let expected = weights(&sharing, way)?;
        for channel in CHANNELS {
            let name = format!("{way}-{channel}");
            writing.must_train(&job(&name, &spec, &sync, channel), LONG)?;
            ensure!(weights(&writing, &name)? == expected, "{name} has other bits when all is written down");
        }
    }
    ensure!(written.log()?.contains("written down and read again"), "this node shares numbers too");
    Ok(())
}

#[test]
fn workers_that_die_or_come_and_go_need_nothing_that_is_shared() -> Result<()> {
    let (_node, client) = writing()?;
    for (topology, channel) in [("memory", "store"), ("tree:1,2,4", "store"), ("memory", "memory")] {
        let word = format!("{}-{channel}", topology.split(':').next().unwrap_or_default());
        let sync = json!({ "k": 5, "topology": topology, "channel": channel });
        let spec = |name: &str| lenet(json!({ "name": name, "workers": 4, "epochs": 6, "sync": sync }));
        let [calm, disturbed] = ["calm", "disturbed"].map(|what| format!("{what}-{word}"));
        client.must_train(&spec(&calm), LONG)?;
        client.must_submit(&spec(&disturbed))?;
        for (epoch, worker) in [(1, 0), (2, 3)] {
            client.job_until(&disturbed, LONG, |detail| detail.job.epoch >= epoch)?;
            client.order(&disturbed, &format!("workers/{worker}/kill"))?;
        }
        client.must_finish(&disturbed, LONG)?;
        ensure!(weights(&client, &calm)? == weights(&client, &disturbed)?, "{word}: other bits");
    }
    Ok(())
}

#[test]
fn paces_without_a_barrier_and_fanned_out_steps_need_nothing_that_is_shared() -> Result<()> {
    let (_node, client) = writing()?;
    for (name, sync) in [
        ("on-arrival", json!({ "pace": "on-arrival", "codec": "qsgd:8" })),
        ("stale", json!({ "pace": "staleness:2" })),
        ("overwrite", json!({ "pace": "overwrite", "k": 4 })),
        ("quorum", json!({ "pace": "quorum:3,10" })),
    ] {
        client.must_train(&lenet(json!({ "name": name, "workers": 4, "lr": 0.002, "sync": sync })), LONG)?;
    }
    client.must_train(&lenet(json!({ "name": "fanned", "workers": 2, "fan_out": 2 })), LONG)?;
    Ok(())
}
