//! What a tenant stores is counted exactly, whatever happens.

use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::components::{self, marked};
use weft_tests::node::{Node, Options};

/// What a component takes, with the native code that it is compiled to. Components that only differ in their mark are
/// compiled to as much.
fn stored(node: &Node, component: &[u8]) -> Result<u64> {
    let tenant = node.tenant("somebody-else", json!({}))?;
    tenant.must_deploy("echo", component)?;
    let versions = tenant.get("/v1/functions/echo/versions")?.json()?;
    let native = versions["versions"][0]["native_bytes"].as_u64().context("no bytes")?;
    ensure!(native > 0, "{versions}");
    Ok(component.len() as u64 + native)
}

#[test]
fn a_deploy_beyond_the_quota_is_refused_and_says_what_is_used() -> Result<()> {
    let echo = components::echo()?;
    let node = Options::default().start()?;
    let size = stored(&node, &echo)?;
    let tenant = node.tenant("one", json!({ "stored_bytes": size + 10 }))?;
    tenant.must_deploy("echo", &echo)?;
    let answer = tenant.deploy("echo", &marked(&echo, 1))?;
    ensure!(answer.problem_kind()? == ("quota-exceeded".to_owned(), Some("stored_bytes".to_owned())), "{answer:?}");
    ensure!(answer.text().contains(&size.to_string()), "{answer:?}");
    ensure!(tenant.usage()?.now.stored_bytes == size);
    Ok(())
}

#[test]
fn what_is_deleted_makes_room() -> Result<()> {
    let echo = components::echo()?;
    let other = marked(&echo, 1);
    let node = Options::default().start()?;
    let size = stored(&node, &echo)?;
    let each = size + (other.len() - echo.len()) as u64;
    let tenant = node.tenant("one", json!({ "stored_bytes": 2 * each }))?;
    tenant.must_deploy("echo", &echo)?;
    let first = tenant.must_deploy("other", &other)?;
    ensure!(tenant.deploy("third", &marked(&echo, 2))?.status >= 400, "{first}");
    tenant.send("DELETE", "/v1/functions/other", &[], b"")?;
    ensure!(tenant.usage()?.now.stored_bytes == size);
    tenant.must_deploy("third", &marked(&echo, 2))?;
    Ok(())
}

#[test]
fn what_is_stored_is_counted_again_after_a_kill() -> Result<()> {
    let echo = components::echo()?;
    let node = Options::default().start()?;
    let size = stored(&node, &echo)?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &echo)?;
    tenant.must_deploy("echo", &marked(&echo, 1))?;
    let before = tenant.usage()?.now.stored_bytes;
    let node = node.kill_and_restart()?;
    let tenant = weft_tests::http::Client::new(node.url(), tenant.key());
    let expected = 2 * size + (marked(&echo, 1).len() - echo.len()) as u64;
    ensure!((before, tenant.usage()?.now.stored_bytes) == (expected, expected), "{before} bytes, not {expected}");
    Ok(())
}

#[test]
fn deploys_at_once_never_share_the_last_room() -> Result<()> {
    let echo = components::echo()?;
    let node = Options::default().start()?;
    let size = stored(&node, &marked(&echo, 0))?;
    let tenant = node.tenant("one", json!({ "stored_bytes": 2 * size }))?;
    let accepted = thread::scope(|scope| {
        let deploy = |mark: u64| tenant.deploy(&format!("f{mark}"), &marked(&echo, mark)).map(|answer| answer.status);
        let deploys: Vec<_> = (0..4).map(|mark| scope.spawn(move || deploy(mark))).collect();
        let statuses = deploys.into_iter().map(|deploy| deploy.join().expect("a deploy panicked"));
        statuses.collect::<Result<Vec<u16>>>()
    })?;
    // Each holds room for its upload while it is compiled, so fewer may fit at once than one after another.
    let at_once = accepted.iter().filter(|&&status| status < 300).count();
    ensure!((1..=2).contains(&at_once), "{accepted:?}");
    for mark in 4..6 {
        tenant.deploy(&format!("f{mark}"), &marked(&echo, mark))?;
    }
    ensure!(tenant.usage()?.now.stored_bytes == 2 * size);
    Ok(())
}
