//! Inference: what it answers is bounded and charged, and it ends with whoever asked for it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::DeviceList;
use weft::digest::Digest;
use weft_tests::command::User;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};
use weft_tests::wire::Wire;

use super::LONG;

const SOON: Duration = Duration::from_secs(20);
const INFER: &str = "/v1/jobs/it/infer";
/// Bytes of a row of `wide-rows`.
const ROW: u64 = 1 << 20;

/// A tenant with a trainer that does what its parameter `harm` says, and samples for it.
pub(super) fn with_harm(node: &Node, name: &str, quota: Value) -> Result<Client> {
    let client = node.tenant(name, quota)?;
    client.must_deploy("harm", &component("tests/guests/hostile-trainer")?)?;
    let made = json!({ "synthetic": { "kind": "binary20", "train": 320, "test": 80, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/teacher", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    Ok(client)
}

/// A job that does harm in one kind of call.
pub(super) fn harm(name: &str, harm: &str, when: &str) -> Value {
    json!({
        "function": "harm", "dataset": "teacher", "name": name, "batch": 16, "epochs": 1, "memory": 64 << 20,
        "params": { "harm": harm, "when": when },
    })
}

/// A tenant whose job `it` is trained, and does harm when its model is used.
fn trained(node: &Node, name: &str, what: &str, quota: Value) -> Result<Client> {
    let client = with_harm(node, name, quota)?;
    client.must_train(&harm("it", what, "infer"), LONG)?;
    Ok(client)
}

fn samples(count: usize) -> Value {
    json!({ "samples": vec![vec![0.5; 20]; count] })
}

fn memory(client: &Client) -> Result<u64> {
    client.get("/v1/usage")?.json()?["now"]["memory"].as_u64().context("no memory")
}

#[test]
fn a_jobs_model_is_used_on_a_data_set_of_its_node_and_nobody_else_sees_that() -> Result<()> {
    let node = Options::default().start()?;
    let client = trained(&node, "one", "none", json!({}))?;
    let user = User::of(&client)?;
    let inferred = user.json(&["infer", "--job", "it", "--dataset", "teacher"])?;
    // Its samples to test with, and how many of their classes were found.
    ensure!(inferred["samples"] == 80, "{} samples", inferred["samples"]);
    ensure!(inferred["outputs"].as_array().is_some_and(|rows| rows.len() == 80), "{inferred}");
    ensure!(inferred["metrics"]["accuracy"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{inferred}");
    // Of a name that the node does not know, what is shipped is meant.
    let ended = user.weft(&["infer", "--job", "it", "--dataset", "digits"])?;
    ensure!(ended.code == Some(1) && ended.stderr.contains("64 numbers"), "{ended:?}");
    let manifest = client.get("/v1/datasets/teacher/manifest")?.json()?;
    let block = manifest["test"]["blocks"][0]["digest"].as_str().context("no block")?.to_owned();
    let fetched = client.get(&format!("/v1/datasets/teacher/blocks/{block}"))?;
    ensure!(fetched.status == 200 && Digest::of(&fetched.body).to_string() == block, "{}", fetched.status);
    let other = with_harm(&node, "two", json!({}))?;
    let foreign = Digest::of(b"foreign");
    ensure!(other.get(&format!("/v1/datasets/teacher/blocks/{foreign}"))?.status == 404);
    ensure!(other.send("DELETE", "/v1/datasets/teacher", &[], b"")?.status == 204);
    for path in ["manifest".to_owned(), format!("blocks/{block}")] {
        ensure!(other.get(&format!("/v1/datasets/teacher/{path}"))?.status == 404, "{path} of somebody else");
    }
    Ok(())
}

#[test]
fn outputs_are_charged_until_they_are_sent() -> Result<()> {
    let node = Options::default().set("max-payload", "64MiB").start()?;
    let client = trained(&node, "one", "wide-rows", json!({}))?;
    eventually(SOON, || Ok(memory(&client)? == 0))?;
    let mut wire = Wire::connect(&client)?;
    let body = serde_json::to_vec(&samples(16))?;
    wire.request("POST", INFER, &["content-type: application/json"], &body)?;
    // More than the buffers on the way take in, and nobody reads it.
    eventually(LONG, || Ok(leases(&node)? == 0 && memory(&client)? >= 16 * ROW))
        .context("the answer is not charged")?;
    let answer = wire.answer()?;
    let outputs: Value = answer.json()?;
    let rows = outputs["outputs"].as_array().context("no rows")?;
    ensure!(rows.len() == 16 && rows.iter().all(|row| row.as_array().is_some_and(|row| row.len() == 1 << 18)));
    eventually(SOON, || Ok(memory(&client)? == 0)).context("the answer is still charged")
}

#[test]
fn outputs_that_the_tenant_has_no_memory_for_are_refused_by_name() -> Result<()> {
    let node = Options::default().start()?;
    let client = trained(&node, "one", "wide-rows", json!({ "memory": 16 << 20 }))?;
    let answer = client.post(INFER, &samples(12))?;
    ensure!(answer.status == 403, "{} {:.300}", answer.status, answer.text());
    ensure!(answer.problem_kind()? == ("quota-exceeded".into(), Some("memory".into())), "{answer:?}");
    eventually(SOON, || Ok(memory(&client)? == 0))?;
    ensure!(client.post(INFER, &samples(1))?.status == 200);
    Ok(())
}

#[test]
fn outputs_of_all_batches_together_are_bounded() -> Result<()> {
    let node = Options::default().set("max-payload", "4MiB").start()?;
    let client = trained(&node, "one", "wide-rows", json!({}))?;
    ensure!(client.post(INFER, &samples(4))?.status == 200);
    let answer = client.post(INFER, &samples(5))?;
    ensure!(answer.status == 502, "{} {:.300}", answer.status, answer.text());
    ensure!(answer.problem_kind()? == ("limit-exceeded".into(), Some("max_payload".into())), "{answer:?}");
    Ok(())
}

/// Leases on all devices.
pub(super) fn leases(node: &Node) -> Result<usize> {
    let list: DeviceList = serde_json::from_value(node.operator()?.get("/v1/devices")?.json()?)?;
    Ok(list.devices.iter().flat_map(|device| &device.tenants).map(|tenant| tenant.leases).sum())
}

/// A tenant whose calls may take as long as they like.
fn patient() -> Value {
    json!({ "cpu_ms": 600_000, "wall_ms": 600_000 })
}

/// Asks for inference and does not wait for the answer.
fn ask(client: &Client) -> Result<Wire> {
    let mut wire = Wire::connect(client)?;
    let body = serde_json::to_vec(&samples(1))?;
    wire.request("POST", INFER, &["content-type: application/json"], &body)?;
    Ok(wire)
}

#[test]
fn inference_that_nobody_waits_for_is_stopped_and_charged() -> Result<()> {
    let node = Options::default().start()?;
    let client = trained(&node, "one", "matmuls", patient())?;
    eventually(SOON, || Ok(leases(&node)? == 0))?;
    let before = client.usage()?.usage.device_us;
    let wire = ask(&client)?;
    eventually(SOON, || Ok(leases(&node)? == 1)).context("it did not start")?;
    drop(wire);
    eventually(SOON, || Ok(leases(&node)? == 0)).context("it goes on")?;
    let charged = || Ok(client.usage()?.usage.device_us > before);
    eventually(SOON, charged).context("what it took was not charged")
}

#[test]
fn inference_for_a_tenant_that_is_deleted_is_stopped() -> Result<()> {
    let node = Options::default().start()?;
    let client = trained(&node, "one", "sleep", patient())?;
    eventually(SOON, || Ok(leases(&node)? == 0))?;
    let _wire = ask(&client)?;
    eventually(SOON, || Ok(leases(&node)? == 1)).context("it did not start")?;
    ensure!(node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?.status == 204);
    eventually(SOON, || Ok(leases(&node)? == 0)).context("it goes on")
}

#[test]
fn the_trial_of_a_trainer_ends_with_its_tenant() -> Result<()> {
    let node = Options::default().start()?;
    let client = with_harm(&node, "one", patient())?;
    let submitting = std::thread::spawn(move || client.submit(&harm("it", "sleep", "init")));
    eventually(SOON, || Ok(leases(&node)? == 1)).context("it did not start")?;
    ensure!(node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?.status == 204);
    eventually(SOON, || Ok(leases(&node)? == 0)).context("it goes on")?;
    let answer = submitting.join().ok().context("the client panicked")??;
    ensure!(answer.status == 401, "{answer:?}");
    Ok(())
}
