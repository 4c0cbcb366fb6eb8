//! Checkpoints that are larger than what is sent to a bucket at a time.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::digest::Digest;
use weft::job::State;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};
use weft_tests::s3::{BUCKET, KEY_ID, Mood, SECRET, Server};

use super::{LONG, weights};

/// What a bucket is sent at a time.
const PART: u64 = 8 << 20;

fn node_with(bucket: &Server) -> Result<(Node, Client)> {
    let node = Options::default()
        .set("blob-store", format!("s3://{BUCKET}/node"))
        .set("s3-endpoint", bucket.endpoint())
        .with("AWS_ACCESS_KEY_ID", KEY_ID)
        .with("AWS_SECRET_ACCESS_KEY", SECRET)
        .start()?;
    let client = node.tenant("one", json!({}))?;
    client.must_deploy("mlp", &component("functions/mlp")?)?;
    let made = json!({ "synthetic": { "kind": "higgs", "train": 600, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/higgs", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok((node, client))
}

/// A model of 6 MB, and its moments twice.
fn large(name: &str, epochs: u64) -> Value {
    json!({
        "name": name, "function": "mlp", "dataset": "higgs", "epochs": epochs, "batch": 50, "lr": 0.01, "seed": 7,
        "memory": 256 << 20, "workers": 2, "k": 2, "params": { "features": "28", "width": "1200", "layers": "2" },
    })
}

/// Every blob in the bucket is what its name says.
fn blobs_are_whole(bucket: &Server) -> Result<()> {
    for key in bucket.keys()? {
        let name = key.trim_start_matches("node/").replace('/', "");
        if let Ok(digest) = name.parse::<Digest>() {
            ensure!(Digest::of(&std::fs::read(bucket.object(&key))?) == digest, "`{key}` is no whole blob");
        }
    }
    Ok(())
}

#[test]
fn a_checkpoint_of_which_only_parts_arrived_is_none_and_changes_no_bit() -> Result<()> {
    const EPOCHS: u64 = 15;
    let bucket = Server::start()?;
    let (node, client) = node_with(&bucket)?;
    client.must_train(&large("calm", EPOCHS), LONG)?;
    ensure!(bucket.requests("PUT", "partNumber=3") > 0, "no checkpoint had three parts");
    client.must_submit(&large("disturbed", EPOCHS))?;
    client.job_until("disturbed", LONG, |detail| detail.job.epoch >= 2)?;
    bucket.set_mood(Mood::FullAfterParts(1));
    let waits = client.job_until("disturbed", LONG, |detail| detail.job.reason.starts_with("waits: a checkpoint"))?;
    ensure!(waits.job.state == State::Running && waits.job.epoch < EPOCHS, "{:?}", waits.job);
    blobs_are_whole(&bucket)?;
    let node = node.kill_and_restart()?;
    bucket.set_mood(Mood::Fine);
    let client = Client::new(node.url(), client.key());
    let ended = client.must_finish("disturbed", LONG)?;
    ensure!(ended.history.len() as u64 == EPOCHS, "{} epochs", ended.history.len());
    ensure!(weights(&client, "calm")? == weights(&client, "disturbed")?, "other bits");
    blobs_are_whole(&bucket)
}

#[test]
fn what_is_on_its_way_to_a_bucket_is_counted() -> Result<()> {
    let bucket = Server::start()?;
    let (node, client) = node_with(&bucket)?;
    client.must_submit(&large("counted", 100_000))?;
    client.job_until("counted", LONG, |detail| detail.job.epoch >= 1)?;
    // Nothing else comes or goes while it trains.
    let mut least = u64::MAX;
    let rises = || {
        let now = node.view()?.memory;
        least = least.min(now);
        Ok(now >= least + 2 * PART)
    };
    eventually(LONG, rises).context("checkpoints take no memory that is counted")?;
    client.order("counted", "stop")?.json()?;
    client.job_in("counted", State::Stopped, LONG)?;
    node.idle(LONG)
}
