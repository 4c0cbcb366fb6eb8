//! Backups carry everything; a deleted tenant leaves nothing.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft_tests::command::User;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

use super::*;

/// An unfinished upload, a data set with two versions and a model.
fn furnish(client: &Client) -> Result<()> {
    let file = noisy_npy(1, 9_000, 1_000);
    let digest = weft::digest::Digest::of(&file).to_string();
    begin(client, &digest, file.len())?.json()?;
    send_part(client, &digest, 1, &file[PART..])?.json()?;
    create(client, "it", &synthetic(200, 1))?.json()?;
    append(client, "it", &synthetic(50, 2))?.json()?;
    models::keep(client, "model", &upload(client, &models::model(3)?)?)?.json()?;
    Ok(())
}

/// Everything that can be seen of it.
fn seen(client: &Client) -> Result<Vec<Value>> {
    let digest = weft::digest::Digest::of(&noisy_npy(1, 9_000, 1_000));
    let mut seen = vec![client.get(&format!("/v1/uploads/{digest}"))?.json()?, show(client, "it")?];
    for version in seen[1]["versions"].as_array().context("no versions")?.clone() {
        let version = version["version"].as_str().context("no version")?;
        seen.push(client.get(&format!("/v1/datasets/it?version={version}"))?.json()?);
    }
    seen.push(client.get("/v1/models/model")?.json()?);
    seen.push(json!(client.get("/v1/models/model/file")?.body));
    seen.push(json!(stored(client)?));
    Ok(seen)
}

#[test]
fn a_restored_node_has_the_same_data_sets_models_and_uploads() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    furnish(&client)?;
    let before = seen(&client)?;
    let user = User::of(&node.operator()?)?;
    let file = user.home().join("backup.tar").display().to_string();
    user.must(&["backup", &file])?;
    let folder = Arc::new(tempfile::tempdir()?);
    user.must(&["restore", &file, "--data-dir", &folder.path().join("data").display().to_string()])?;
    let restored = Options::default().start_in(folder)?;
    let client = Client::new(restored.url(), client.key());
    ensure!(seen(&client)? == before);
    disk_holds_what_is_charged(&restored, &client)?;
    // What was half sent goes on.
    let digest = upload(&client, &noisy_npy(1, 9_000, 1_000))?;
    create(&client, "noise", &of_file(&digest, "noise.npy"))?.json()?;
    disk_holds_what_is_charged(&restored, &client)
}

#[test]
fn an_orderly_stop_keeps_everything() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    furnish(&client)?;
    let before = seen(&client)?;
    let node = Options::default().start_in(node.stop()?)?;
    ensure!(seen(&Client::new(node.url(), client.key()))? == before);
    Ok(())
}

fn is_empty(node: &Node) -> Result<()> {
    let left = files(node, "blobs")?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[test]
fn a_deleted_tenant_leaves_no_data() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    furnish(&client)?;
    ensure!(delete(&node.operator()?, "/v1/tenants/one")? == 204);
    is_empty(&node)?;
    let node = node.kill_and_restart()?;
    is_empty(&node)?;
    let client = node.tenant("one", json!({}))?;
    ensure!(stored(&client)? == 0);
    ensure!(client.get("/v1/datasets")?.json()?["datasets"] == json!([]));
    ensure!(client.get("/v1/models")?.json()?["models"] == json!([]));
    Ok(())
}

#[test]
fn what_another_tenant_has_too_outlives_a_deleted_one() -> Result<()> {
    let node = Options::default().start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    furnish(&one)?;
    furnish(&two)?;
    let before = seen(&two)?;
    ensure!(delete(&node.operator()?, "/v1/tenants/one")? == 204);
    let node = node.kill_and_restart()?;
    let two = Client::new(node.url(), two.key());
    ensure!(seen(&two)? == before);
    disk_holds_what_is_charged(&node, &two)
}
