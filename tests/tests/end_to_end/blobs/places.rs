//! A node whose blobs are not in its data directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use weft_tests::command::User;
use weft_tests::components::{self, marked};
use weft_tests::http::Client;
use weft_tests::node::{Options, eventually};
use weft_tests::s3::{KEY_ID, SECRET, Server};

fn on(server: &Server, prefix: &str) -> Options {
    Options::default()
        .set("blob-store", format!("s3://bucket/{prefix}"))
        .set("s3-endpoint", server.endpoint())
        .with("AWS_ACCESS_KEY_ID", KEY_ID)
        .with("AWS_SECRET_ACCESS_KEY", SECRET)
}

/// The keys of components.
fn stored(server: &Server) -> Result<Vec<String>> {
    Ok(server.keys()?.into_iter().filter(|key| !key.ends_with("/owner")).collect())
}

#[test]
fn a_function_in_a_bucket_is_compiled_again_after_the_machine_was_lost() -> Result<()> {
    let server = Server::start()?;
    let node = on(&server, "node").dev().start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    ensure!(stored(&server)?.len() == 1 && std::fs::read_dir(node.data_dir().join("blobs"))?.next().is_none());
    let folder = node.kill()?;
    std::fs::remove_dir_all(folder.path().join("data/artifacts"))?;
    let node = on(&server, "node").dev().start_in(folder)?;
    ensure!(node.anybody().must_invoke("echo", "from afar")? == "from afar");
    ensure!(!node.log()?.contains(SECRET) && !node.log()?.contains(KEY_ID), "{}", node.log()?);
    Ok(())
}

#[test]
fn a_component_that_nobody_has_any_more_leaves_the_bucket() -> Result<()> {
    let server = Server::start()?;
    let node = on(&server, "node").start()?;
    let [one, two] = [node.tenant("one", json!({}))?, node.tenant("two", json!({}))?];
    for tenant in [&one, &two] {
        tenant.must_deploy("echo", &components::echo()?)?;
    }
    one.send("DELETE", "/v1/functions/echo", &[], b"")?;
    ensure!(stored(&server)?.len() == 1 && two.must_invoke("echo", "mine")? == "mine");
    two.send("DELETE", "/v1/functions/echo", &[], b"")?;
    eventually(Duration::from_secs(10), || Ok(stored(&server)?.is_empty()))
}

#[test]
fn a_bucket_that_is_away_fails_deploys_and_nothing_else() -> Result<()> {
    let mut server = Server::start()?;
    let node = on(&server, "node").start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &components::echo()?)?;
    let before = tenant.usage()?.now.stored_bytes;
    server.stop();
    let answer = tenant.deploy("echo", &marked(&components::echo()?, 1))?;
    ensure!(answer.problem_kind()?.0 == "internal", "{answer:?}");
    ensure!(tenant.must_invoke("echo", "still")? == "still");
    eventually(Duration::from_secs(5), || Ok(tenant.usage()?.now.stored_bytes == before))
}

#[test]
fn a_backup_moves_from_a_bucket_to_a_folder_and_back() -> Result<()> {
    let server = Server::start()?;
    let node = on(&server, "one").start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &components::echo()?)?;
    let user = User::of(&node.operator()?)?.with("AWS_ACCESS_KEY_ID", KEY_ID).with("AWS_SECRET_ACCESS_KEY", SECRET);
    let file = user.home().join("backup.tar").display().to_string();
    user.must(&["backup", &file])?;
    let (folder, bucket) = (Arc::new(tempfile::tempdir()?), Arc::new(tempfile::tempdir()?));
    let data = |folder: &tempfile::TempDir| folder.path().join("data").display().to_string();
    user.must(&["restore", &file, "--data-dir", &data(&folder)])?;
    let place = ["--blob-store", "s3://bucket/two", "--s3-endpoint", server.endpoint()];
    user.must(&[&["restore", &file, "--data-dir", &data(&bucket)], &place[..]].concat())?;
    ensure!(stored(&server)?.len() == 2, "{:?}", stored(&server)?);
    let restored = [Options::default().start_in(folder)?, on(&server, "two").start_in(bucket)?];
    for node in restored {
        ensure!(Client::new(node.url(), tenant.key()).must_invoke("echo", "again")? == "again");
    }
    Ok(())
}

#[test]
fn a_wrong_secret_stops_the_start() -> Result<()> {
    let server = Server::start()?;
    let Err(error) = on(&server, "node").with("AWS_SECRET_ACCESS_KEY", "wrong").start() else {
        anyhow::bail!("it has started");
    };
    let error = error.to_string();
    ensure!(error.contains("s3://bucket/node") && error.contains("SignatureDoesNotMatch"), "{error}");
    ensure!(!error.contains(KEY_ID), "{error}");
    Ok(())
}

#[test]
fn a_second_node_on_the_same_prefix_does_not_start() -> Result<()> {
    let server = Server::start()?;
    let _first = on(&server, "node").dev().start()?;
    ensure!(on(&server, "node").dev().start().is_err());
    Ok(())
}

#[test]
fn a_node_can_keep_its_blobs_in_memory() -> Result<()> {
    let node = Options::default().dev().set("blob-store", "memory:").start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    ensure!(node.anybody().must_invoke("echo", "briefly")? == "briefly");
    Ok(())
}

#[test]
fn a_place_that_is_none_is_refused_by_name() -> Result<()> {
    let ended = User::new()?.weft(&["serve", "--blob-store", "ftp://host"])?;
    ensure!(ended.code != Some(0) && ended.stderr.contains("blob_store"), "{ended:?}");
    Ok(())
}

/// A bucket takes its time to delete: what one tenant gave up is nothing that another has to wait for.
#[test]
fn a_bucket_that_is_slow_to_delete_holds_up_nobody_else() -> Result<()> {
    let server = Server::start()?;
    let node = on(&server, "node").start()?;
    let [one, two] = [node.tenant("one", json!({}))?, node.tenant("two", json!({}))?];
    let create = |tenant: &Client, seed: u32| -> Result<()> {
        let spec = json!({ "synthetic": { "kind": "higgs", "train": 100, "seed": seed } });
        let made = tenant.send("PUT", &format!("/v1/datasets/d{seed}"), &[], &serde_json::to_vec(&spec)?)?;
        ensure!(made.status == 201, "{made:?}");
        Ok(())
    };
    let before = stored(&server)?;
    create(&one, 1)?;
    let of_one: Vec<String> = stored(&server)?.into_iter().filter(|key| !before.contains(key)).collect();
    ensure!(!of_one.is_empty());
    server.hold(of_one.clone());
    let start = Instant::now();
    let deleted = one.send("DELETE", "/v1/datasets/d1", &[], b"")?;
    ensure!(deleted.status == 204 && one.usage()?.now.stored_bytes == 0, "{deleted:?}");
    create(&two, 2)?;
    ensure!(node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?.status == 204);
    create(&two, 3)?;
    ensure!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    server.hold(Vec::new());
    eventually(Duration::from_secs(60), || Ok(of_one.iter().all(|key| !server.object(key).exists())))
}
