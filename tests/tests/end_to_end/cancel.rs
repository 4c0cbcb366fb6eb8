//! Callers that go away.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::held::Held;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};
use weft_tests::{components, guests};

const SOON: Duration = Duration::from_secs(10);

fn tenant(node: &Node) -> Result<Client> {
    let tenant = node.tenant("tenant", json!({ "instances": 1 }))?;
    tenant.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    Ok(tenant)
}

/// Invokes, goes away in the middle, and waits for the node to notice.
fn leave(node: &Node, tenant: &Client, function: &str, body: &str) -> Result<()> {
    let held = Held::invoke(tenant, function, body)?;
    eventually(SOON, || Ok(node.view()?.instances == 1)).context("it did not start")?;
    drop(held);
    node.idle(SOON)
}

#[test]
fn a_loop_that_nobody_waits_for_is_stopped() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node)?;
    leave(&node, &tenant, "hostile", "loop")
}

#[test]
fn a_sleep_that_nobody_waits_for_is_stopped() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node)?;
    leave(&node, &tenant, "sleep", "")
}

#[test]
fn an_invocation_that_was_given_up_is_charged() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node)?;
    leave(&node, &tenant, "hostile", "loop")?;
    let usage = tenant.usage()?.usage;
    ensure!((usage.invocations, usage.failures) == (1, 1), "{usage:?}");
    ensure!(usage.cpu_us > 0 && usage.memory_byte_ms > 0 && usage.bytes_in >= 4, "{usage:?}");
    Ok(())
}

#[test]
fn a_caller_that_leaves_the_queue_costs_nothing() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node)?;
    let running = Held::invoke(&tenant, "sleep", "")?;
    eventually(SOON, || Ok(node.view()?.instances == 1))?;
    let waiting = Held::invoke(&tenant, "hostile", "loop")?;
    eventually(SOON, || Ok(node.view()?.waiting == 1))?;
    drop(waiting);
    drop(running);
    node.idle(SOON)?;
    let usage = tenant.usage()?.usage;
    ensure!(usage.invocations == 1, "{usage:?}");
    Ok(())
}

#[test]
fn the_place_of_somebody_who_left_is_free_for_the_next() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node)?;
    leave(&node, &tenant, "hostile", "loop")?;
    ensure!(tenant.must_invoke("hostile", "state")? == "1");
    Ok(())
}
