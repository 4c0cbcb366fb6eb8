//! A bucket or a store that does not answer: an order ends whatever a job waits for, and nobody else waits with it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::job::State;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};
use weft_tests::redis::RedisServer;
use weft_tests::s3::{BUCKET, KEY_ID, SECRET, Server};

use super::{LONG, lenet, prepare};

/// However busy the machine is; far less than anybody waits for a bucket.
const SOON: Duration = Duration::from_secs(20);

/// A node with a bucket, and two tenants.
fn node(bucket: &Server) -> Result<(Node, [Client; 2])> {
    let node = Options::default()
        .set("blob-store", format!("s3://{BUCKET}/node"))
        .set("s3-endpoint", bucket.endpoint())
        .with("AWS_ACCESS_KEY_ID", KEY_ID)
        .with("AWS_SECRET_ACCESS_KEY", SECRET)
        .start()?;
    let tenants = [node.tenant("ada", json!({}))?, node.tenant("bob", json!({}))?];
    tenants.iter().try_for_each(prepare)?;
    Ok((node, tenants))
}

/// A job that goes on for long, with a checkpoint every few steps.
fn long(name: &str) -> Value {
    lenet(json!({ "name": name, "epochs": 400, "checkpoint_every": 7 }))
}

#[test]
fn a_job_that_waits_for_its_checkpoint_stops_when_it_is_told_to() -> Result<()> {
    let bucket = Server::start()?;
    let (_node, [ada, bob]) = node(&bucket)?;
    let before = bucket.keys()?;
    ada.must_submit(&long("waits"))?;
    ada.job_until("waits", LONG, |detail| detail.job.epoch >= 1)?;
    ada.order("waits", "stop")?.json()?;
    ada.job_in("waits", State::Stopped, LONG)?;
    // Whatever it has left: its checkpoint, and its model.
    bucket.hold(bucket.keys()?.into_iter().filter(|key| !before.contains(key)).collect());
    ada.order("waits", "resume")?.json()?;
    ada.job_in("waits", State::Running, LONG)?;
    // With another seed: what is the same to the last bit is one blob, whoever has it.
    bob.must_train(&lenet(json!({ "name": "goes-on", "seed": 77 })), LONG)?;
    ada.order("waits", "stop")?.json()?;
    ada.job_in("waits", State::Stopped, SOON)?;
    bucket.hold(Vec::new());
    Ok(())
}

#[test]
fn a_job_does_not_wait_until_its_old_checkpoints_are_deleted() -> Result<()> {
    let bucket = Server::start()?;
    let (_node, [ada, _]) = node(&bucket)?;
    let before = bucket.keys()?;
    ada.must_submit(&lenet(json!({ "name": "goes-on", "epochs": 40, "checkpoint_every": 7 })))?;
    ada.job_until("goes-on", LONG, |detail| detail.job.epoch >= 1)?;
    bucket.hold(bucket.keys()?.into_iter().filter(|key| !before.contains(key)).collect());
    ada.must_finish("goes-on", Duration::from_secs(60))?;
    bucket.hold(Vec::new());
    Ok(())
}

#[test]
fn a_job_whose_channel_does_not_answer_stops_when_it_is_told_to() -> Result<()> {
    let bucket = Server::start()?;
    let (_node, [ada, bob]) = node(&bucket)?;
    let sync = json!({ "rule": "gradient-average", "topology": "scatter", "channel": "blobs" });
    ada.must_submit(&lenet(json!({ "name": "waits", "workers": 2, "epochs": 400, "sync": sync })))?;
    ada.job_until("waits", LONG, |detail| detail.job.epoch >= 1)?;
    bucket.hold(vec!["/scratch/".to_owned()]);
    bob.must_train(&lenet(json!({ "name": "goes-on" })), LONG)?;
    ada.order("waits", "stop")?.json()?;
    ada.job_in("waits", State::Stopped, SOON)?;
    bucket.hold(Vec::new());
    // What it has left there is in nobody's way.
    ada.order("waits", "resume")?.json()?;
    let epoch = ada.job("waits")?.job.epoch;
    ada.job_until("waits", LONG, |detail| detail.job.epoch > epoch)?;
    Ok(())
}

/// Its values would be deleted while it trains.
#[test]
fn a_job_that_is_being_deleted_is_not_resumed() -> Result<()> {
    let redis = RedisServer::start()?;
    let node = Options::default().dev().set("params-store", redis.address()).start()?;
    let client = node.anybody();
    prepare(&client)?;
    client.must_submit(&long("leaves"))?;
    client.job_in("leaves", State::Running, LONG)?;
    client.order("leaves", "stop")?.json()?;
    client.job_in("leaves", State::Stopped, LONG)?;
    redis.pause()?;
    let (told, tells) = mpsc::channel();
    for _ in 0..2 {
        let (client, told) = (node.anybody(), told.clone());
        thread::spawn(move || told.send(client.send("DELETE", "/v1/jobs/leaves", &[], b"")).ok());
    }
    // One of them waits for the store, and so the other is refused.
    let second = tells.recv_timeout(SOON).context("both wait")??;
    ensure!(second.status == 409 && second.text().contains("being deleted"), "{second:?}");
    let resumed = client.order("leaves", "resume")?;
    ensure!(resumed.status == 409 && resumed.text().contains("being deleted"), "{resumed:?}");
    redis.go_on()?;
    let first = tells.recv_timeout(LONG).context("it was not deleted")??;
    ensure!(first.status == 204, "{first:?}");
    ensure!(client.get("/v1/jobs/leaves")?.status == 404);
    Ok(())
}
