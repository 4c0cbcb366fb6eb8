//! Backup and restore.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weft_tests::command::{Ended, User};
use weft_tests::components::{self, marked};
use weft_tests::http::Client;
use weft_tests::jobs::is_unfinished;
use weft_tests::node::{Node, Options, eventually};

/// A node with two tenants, three functions and some usage, and the tenants' keys.
fn original() -> Result<(Node, [String; 2])> {
    let node = Options::default().start()?;
    let keys = ["one", "two"].map(|name| -> Result<String> {
        let tenant = node.tenant(name, json!({ "functions": 5 }))?;
        tenant.must_deploy("echo", &components::echo()?)?;
        tenant.must_invoke("echo", "counted")?;
        Ok(tenant.key().context("no key")?.to_owned())
    });
    let [one, two] = keys;
    let keys = [one?, two?];
    let one = Client::new(node.url(), Some(&keys[0]));
    one.must_deploy("echo", &marked(&components::echo()?, 1))?;
    one.must_deploy("it", &components::stored()?)?;
    one.must_invoke("it", "log")?;
    // An answer is given back a moment after it was read, and what a tenant holds is compared below.
    node.idle(Duration::from_secs(10))?;
    Ok((node, keys))
}

fn back_up(node: &Node, user: &User) -> Result<PathBuf> {
    let file = user.home().join("backup.tar");
    let ended = User::of(&node.operator()?)?.weft(&["backup", &file.display().to_string()])?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(file)
}

fn restore(user: &User, file: &Path, data: &Path) -> Result<Ended> {
    user.weft(&["restore", &file.display().to_string(), "--data-dir", &data.display().to_string()])
}

/// Everything that tenants and the operator can see of what is stored.
fn visible(node: &Node, operator_key: &str, keys: &[String]) -> Result<Vec<Value>> {
    let operator = Client::new(node.url(), Some(operator_key));
    let mut seen = vec![operator.get("/v1/tenants")?.json()?];
    for key in keys {
        let tenant = Client::new(node.url(), Some(key));
        seen.push(tenant.get("/v1/usage")?.json()?);
        let functions = tenant.get("/v1/functions")?.json()?;
        for function in functions["functions"].as_array().context("no functions")? {
            let path = format!("/v1/functions/{}", function["name"].as_str().context("no name")?);
            seen.push(tenant.get(&format!("{path}/versions"))?.json()?);
            seen.push(tenant.get(&format!("{path}/logs"))?.json()?);
        }
        seen.push(functions);
    }
    Ok(seen)
}

#[test]
fn a_restored_node_has_the_same_tenants_keys_functions_logs_and_usage() -> Result<()> {
    let (node, keys) = original()?;
    let operator_key = node.operator_key().context("no key")?.to_owned();
    let user = User::new()?;
    let before = visible(&node, &operator_key, &keys)?;
    let file = back_up(&node, &user)?;
    let folder = Arc::new(tempfile::tempdir()?);
    let ended = restore(&user, &file, &folder.path().join("data"))?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let restored = Options::default().start_in(folder)?;
    ensure!(restored.operator_key().is_none(), "a restored node has made a new operator key");
    let after = visible(&restored, &operator_key, &keys)?;
    ensure!(before == after, "{before:#?} became {after:#?}");
    Ok(())
}

#[test]
fn a_restored_function_answers() -> Result<()> {
    let (node, keys) = original()?;
    let user = User::new()?;
    let file = back_up(&node, &user)?;
    let folder = Arc::new(tempfile::tempdir()?);
    restore(&user, &file, &folder.path().join("data"))?;
    let restored = Options::default().start_in(folder)?;
    for key in &keys {
        ensure!(Client::new(restored.url(), Some(key)).must_invoke("echo", "again")? == "again");
    }
    Ok(())
}

#[test]
fn a_backup_is_for_its_owner_only() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let (node, _) = original()?;
    let user = User::new()?;
    let file = back_up(&node, &user)?;
    ensure!(std::fs::metadata(file)?.permissions().mode() & 0o777 == 0o600);
    Ok(())
}

#[test]
fn a_backup_that_was_cut_off_is_refused_and_a_whole_one_taken_after_it() -> Result<()> {
    let (node, keys) = original()?;
    let user = User::new()?;
    let file = back_up(&node, &user)?;
    let whole = std::fs::read(&file)?;
    let folder = Arc::new(tempfile::tempdir()?);
    let data = folder.path().join("data");
    let in_a_blob = whole.len() / 2;
    // In the head, between two entries, in the middle of a component, before the mark of the end, without it.
    for length in [0, 100, 512, 1024, in_a_blob, whole.len() - 2048, whole.len() - 1536] {
        let part = user.file("part.tar", &whole[..length])?;
        let ended = restore(&user, &part, &data)?;
        ensure!(ended.code == Some(1), "{length} of {} bytes: {ended:?}", whole.len());
    }
    let ended = restore(&user, &file, &data)?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let restored = Options::default().start_in(folder)?;
    ensure!(Client::new(restored.url(), Some(&keys[0])).must_invoke("echo", "again")? == "again");
    Ok(())
}

#[test]
fn a_backup_with_a_damaged_component_is_refused() -> Result<()> {
    let (node, _) = original()?;
    let user = User::new()?;
    let file = back_up(&node, &user)?;
    let mut bytes = std::fs::read(&file)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    let damaged = user.file("damaged.tar", &bytes)?;
    let ended = restore(&user, &damaged, &user.home().join("data"))?;
    ensure!(ended.code == Some(1) && ended.stderr.contains("damaged"), "{ended:?}");
    Ok(())
}

#[test]
fn what_is_no_backup_is_refused() -> Result<()> {
    let user = User::new()?;
    for content in [&b"hello"[..], &[0; 4096], &components::echo()?] {
        let file = user.file("file", content)?;
        let ended = restore(&user, &file, &user.home().join("data"))?;
        ensure!(ended.code == Some(1), "{ended:?}");
    }
    Ok(())
}

#[test]
fn a_restore_into_a_used_directory_is_refused() -> Result<()> {
    let (node, keys) = original()?;
    let user = User::new()?;
    let file = back_up(&node, &user)?;
    let data = node.data_dir();
    let folder = node.stop()?;
    let ended = restore(&user, &file, &data)?;
    ensure!(ended.code == Some(1) && ended.stderr.contains("holds data already"), "{ended:?}");
    let node = Options::default().start_in(folder)?;
    ensure!(Client::new(node.url(), Some(&keys[0])).must_invoke("echo", "untouched")? == "untouched");
    Ok(())
}

fn versions(tenant: &Client) -> Result<BTreeSet<String>> {
    let answer = tenant.get("/v1/functions/echo/versions")?;
    if answer.status == 404 {
        return Ok(BTreeSet::new());
    }
    let list = answer.json()?;
    let versions = list["versions"].as_array().context("no versions")?;
    Ok(versions.iter().filter_map(|version| version["version"].as_str().map(str::to_owned)).collect())
}

#[test]
fn a_backup_that_is_taken_during_deploys_is_of_one_moment() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    let user = User::new()?;
    let stop = Arc::new(AtomicBool::new(false));
    let deployer = {
        let (tenant, stop, echo) = (tenant.clone(), stop.clone(), components::echo()?);
        thread::spawn(move || -> Result<()> {
            for mark in 0.. {
                if stop.load(Relaxed) {
                    break;
                }
                tenant.must_deploy("echo", &marked(&echo, mark))?;
            }
            Ok(())
        })
    };
    eventually(Duration::from_secs(20), || Ok(versions(&tenant)?.len() >= 3))?;
    let before = versions(&tenant)?;
    let file = back_up(&node, &user)?;
    let after = versions(&tenant)?;
    stop.store(true, Relaxed);
    deployer.join().map_err(|_| anyhow!("the client panicked"))??;
    let folder = Arc::new(tempfile::tempdir()?);
    let ended = restore(&user, &file, &folder.path().join("data"))?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let restored = Options::default().start_in(folder)?;
    let tenant = Client::new(restored.url(), tenant.key());
    let kept = versions(&tenant)?;
    ensure!(before.is_subset(&kept) && kept.is_subset(&after), "{before:?} {kept:?} {after:?}");
    for version in kept {
        tenant.post("/v1/functions/echo/rollback", &json!({ "to": version }))?.json()?;
        ensure!(tenant.must_invoke("echo", "whole")? == "whole");
    }
    Ok(())
}

/// Checkpoints come and go many times while an archive is read.
#[test]
fn a_backup_that_is_taken_under_a_job_is_whole_and_the_job_goes_on_to_the_same_bits() -> Result<()> {
    use crate::end_to_end::jobs::{LONG, lenet, prepare, weights};
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    prepare(&tenant)?;
    let spec = |name: &str| lenet(json!({ "name": name, "epochs": 12, "workers": 2, "checkpoint_every": 1 }));
    tenant.must_train(&spec("calm"), LONG)?;
    let calm = weights(&tenant, "calm")?;
    tenant.must_submit(&spec("busy"))?;
    let mut backups = Vec::new();
    for epoch in 1..=3 {
        tenant.job_until("busy", LONG, |detail| detail.job.epoch >= epoch)?;
        let user = User::new()?;
        let file = back_up(&node, &user)?;
        backups.push((user, file));
    }
    tenant.must_finish("busy", LONG)?;
    ensure!(weights(&tenant, "busy")? == calm);
    let mut unfinished = 0;
    for (user, file) in &backups {
        let folder = Arc::new(tempfile::tempdir()?);
        let ended = restore(user, file, &folder.path().join("data"))?;
        ensure!(ended.code == Some(0), "{ended:?}");
        unfinished += usize::from(is_unfinished(&folder.path().join("data"), "busy")?);
        let restored = Options::default().start_in(folder)?;
        let tenant = Client::new(restored.url(), tenant.key());
        tenant.must_finish("busy", LONG)?;
        ensure!(weights(&tenant, "busy")? == calm);
    }
    // Or nothing went on after any of them.
    ensure!(unfinished > 0, "the job was over in all {} backups", backups.len());
    Ok(())
}

/// A reader that takes no more of an archive holds nobody up.
#[test]
fn changes_go_on_while_a_backup_is_read() -> Result<()> {
    use std::io::{Read, Write};
    let (node, keys) = original()?;
    let operator = node.operator_key().context("no key")?.to_owned();
    let one = Client::new(node.url(), Some(&keys[0]));
    // More than any buffer on the way holds.
    let file: Vec<u8> = (0..48_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let digest = weft::digest::Digest::of(&file).to_string();
    one.post("/v1/uploads", &json!({ "digest": digest, "size": file.len() }))?.json()?;
    for (index, part) in file.chunks(weft::catalog::PART_BYTES as usize).enumerate() {
        one.send("PUT", &format!("/v1/uploads/{digest}/parts/{index}"), &[], part)?.json()?;
    }
    let address = node.url().strip_prefix("http://").context("not plain HTTP")?.to_owned();
    let mut reader = std::net::TcpStream::connect(&address)?;
    write!(reader, "GET /v1/backup HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {operator}\r\n\r\n")?;
    let mut first = [0; 1_024];
    ensure!(reader.read(&mut first)? > 0, "no archive came");
    one.must_deploy("another", &marked(&components::echo()?, 77))?;
    ensure!(one.must_invoke("another", "at once")? == "at once");
    Ok(())
}
