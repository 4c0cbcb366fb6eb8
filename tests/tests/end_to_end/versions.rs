//! Deploying and going back while invocations are in flight.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};
use weft_tests::{components, guests};

/// A function `it` that runs `hostile`, and the versions of that and of a second one that is not deployed yet.
fn hostile() -> Result<(Node, Client, String)> {
    let node = Options::default().start()?;
    let tenant = node.tenant("tenant", json!({}))?;
    let deployed = tenant.must_deploy("it", &components::hostile()?)?;
    Ok((node, tenant, version(&deployed["function"]["version"])?))
}

fn version(value: &serde_json::Value) -> Result<String> {
    Ok(value.as_str().context("no version")?.to_owned())
}

fn ran(answer: &Answer) -> Result<String> {
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.header("weft-version").context("no version")?.to_owned())
}

#[test]
fn an_invocation_finishes_on_the_version_that_it_started_on() -> Result<()> {
    let (node, tenant, first) = hostile()?;
    let caller = tenant.clone();
    let slow = thread::spawn(move || caller.invoke("it", b"sleep-busy:2000"));
    eventually(Duration::from_secs(10), || Ok(node.view()?.instances == 1))?;
    let second = version(&tenant.must_deploy("it", &guests::wat("plain")?)?["function"]["version"])?;
    let next = tenant.invoke("it", b"")?;
    let still_running = node.view()?.instances == 1;
    let slow = slow.join().map_err(|_| anyhow!("the caller panicked"))??;
    ensure!(still_running, "the slow invocation was over before the deploy, so nothing was shown");
    ensure!((ran(&slow)?, slow.text()) == (first, "2000".to_owned()), "{slow:?}");
    ensure!((ran(&next)?, next.text()) == (second, "ok".to_owned()), "{next:?}");
    Ok(())
}

#[test]
fn after_a_rollback_the_old_version_answers() -> Result<()> {
    let (_node, tenant, first) = hostile()?;
    tenant.must_deploy("it", &guests::wat("plain")?)?;
    let back = tenant.post("/v1/functions/it/rollback", &json!({}))?.json()?;
    ensure!(version(&back["version"])? == first, "{back}");
    let answer = tenant.invoke("it", b"state")?;
    ensure!((ran(&answer)?, answer.text()) == (first, "1".to_owned()), "{answer:?}");
    Ok(())
}

#[test]
fn a_rollback_compiles_nothing() -> Result<()> {
    let (_node, tenant, _) = hostile()?;
    tenant.must_deploy("it", &guests::wat("plain")?)?;
    let deploys = tenant.usage()?.usage.deploys;
    tenant.post("/v1/functions/it/rollback", &json!({}))?.json()?;
    tenant.invoke("it", b"state")?;
    ensure!(tenant.usage()?.usage.deploys == deploys);
    Ok(())
}

#[test]
fn a_deleted_function_lets_what_is_running_finish() -> Result<()> {
    let (node, tenant, first) = hostile()?;
    let caller = tenant.clone();
    let slow = thread::spawn(move || caller.invoke("it", b"sleep-busy:500"));
    eventually(Duration::from_secs(10), || Ok(node.view()?.instances == 1))?;
    let deleted = tenant.send("DELETE", "/v1/functions/it", &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    let slow = slow.join().map_err(|_| anyhow!("the caller panicked"))??;
    ensure!(ran(&slow)? == first, "{slow:?}");
    Ok(())
}
