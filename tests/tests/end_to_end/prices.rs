//! What things cost: price tables of nodes, and what jobs are charged by them.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weft_core::plan::prices::{PRESETS, PriceTable, preset};
use weft_tests::command::User;
use weft_tests::node::{Node, Options};

use super::jobs::{LONG, lenet, prepare};

fn start_with(prices: &str) -> Result<Node> {
    Options::default().dev().set("prices", prices).start()
}

/// A folder with a price table in it.
fn file(text: &str) -> Result<(tempfile::TempDir, String)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("prices.toml");
    std::fs::write(&path, text)?;
    Ok((folder, path.display().to_string()))
}

fn shown(node: &Node) -> Result<PriceTable> {
    Ok(serde_json::from_value(node.anybody().get("/v1/prices")?.json()?)?)
}

#[test]
fn a_node_does_not_start_with_prices_that_are_none() -> Result<()> {
    let (_folder, negative) = file("as_of = \"2026-11\"\ngib_second = -1\n")?;
    let (_folder, unknown) = file("as_of = \"2026-11\"\ncpu_hour = 1\n")?;
    for (prices, words) in [
        (negative.as_str(), ["prices.toml", "`gib_second` is -1"]),
        (&unknown, ["prices.toml", "cpu_hour"]),
        ("no/prices.toml", ["no/prices.toml", "`prices`"]),
        ("tomorrow", ["`tomorrow`", "`lambdaml`"]),
    ] {
        let error = start_with(prices).map(drop).expect_err(prices).to_string();
        ensure!(words.iter().all(|word| error.contains(word)), "{prices}: {error}");
    }
    Ok(())
}

#[test]
fn every_tenant_sees_what_the_node_charges() -> Result<()> {
    ensure!(shown(&Options::default().dev().start()?)? == preset("node")?);
    let node = start_with("lambdaml")?;
    ensure!(shown(&node)? == preset("lambdaml")?);
    let (_folder, path) = file("as_of = \"2026-11\"\ngib_second = 0.5\n[device_second]\nt4 = 2\n")?;
    let node = Options::default().set("prices", &path).set("price-start", 0.25).start()?;
    let tenant = node.tenant("ada", json!({}))?;
    let table: PriceTable = serde_json::from_value(tenant.get("/v1/prices")?.json()?)?;
    ensure!((table.gib_second, table.start, table.device_second["t4"]) == (0.5, 0.25, 2.0), "{table:?}");
    ensure!(node.anybody().get("/v1/prices")?.status == 401);
    Ok(())
}

#[test]
fn a_job_costs_what_the_nodes_prices_say() -> Result<()> {
    let (_folder, memory) = file("as_of = \"2026\"\ngib_second = 3\n")?;
    let (_folder, starts) = file("as_of = \"2026\"\nstart = 5\n")?;
    for prices in [memory, starts] {
        let node = start_with(&prices)?;
        let client = node.anybody();
        prepare(&client)?;
        let spending = client.must_train(&lenet(json!({ "workers": 2, "epochs": 2 })), LONG)?.spending;
        let expected = 3.0 * spending.memory_gib_seconds;
        let starts = 5.0 * spending.cold_starts as f64;
        ensure!(spending.memory_gib_seconds > 0.0 && spending.cold_starts == 2, "{spending:?}");
        let is_one = |one: f64| (spending.cost - one).abs() < 1e-9 * one;
        ensure!(is_one(expected) || is_one(starts), "{spending:?}");
    }
    Ok(())
}

#[test]
fn prices_are_shown_by_the_command_line() -> Result<()> {
    let node = start_with("feng")?;
    let user = User::of(&node.anybody())?;
    let presets = user.json(&["prices", "presets"])?;
    ensure!(PRESETS.iter().all(|name| presets[name]["as_of"].is_string()), "{presets}");
    let show = |more: &[&str]| -> Result<PriceTable> {
        Ok(serde_json::from_value(user.json(&[&["prices", "show"], more].concat())?)?)
    };
    ensure!(show(&[])? == preset("feng")?);
    ensure!(show(&["--preset", "p2p"])? == preset("p2p")?);
    let path = user.file("mine.toml", "as_of = \"2026\"\ncore_second = 0.125\n")?;
    let path = path.display().to_string();
    ensure!(show(&["--file", &path])?.core_second == 0.125);
    let text = user.must(&["prices", "show", "--file", &path])?;
    ensure!(text.contains("core_second") && text.contains("0.125") && text.contains("2026"), "{text}");
    let wrong = user.weft(&["prices", "show", "--preset", "tomorrow"])?;
    ensure!(wrong.code == Some(1) && wrong.stderr.contains("`smlt`"), "{wrong:?}");
    user.file("wrong.toml", "as_of = \"2026\"\nstart = -1\n")?;
    let wrong = user.weft(&["prices", "show", "--file", "wrong.toml"])?;
    ensure!(wrong.code == Some(1) && wrong.stderr.contains("`start` is -1"), "{wrong:?}");
    Ok(())
}

fn sum(rows: &Value) -> f64 {
    rows.as_array().into_iter().flatten().filter_map(|row| row["cost"].as_f64()).sum()
}

#[test]
fn what_a_job_cost_adds_up_by_stage_and_by_worker() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    prepare(&client)?;
    client.must_train(&lenet(json!({ "name": "one", "workers": 3, "epochs": 3 })), Duration::from_secs(120))?;
    let detail = client.get("/v1/jobs/one")?.json()?;
    let cost = detail["spending"]["cost"].as_f64().unwrap_or_default();
    let is_all = |parts: f64| (parts - cost).abs() < 1e-9 * cost;
    ensure!(cost > 0.0 && is_all(sum(&detail["costs"]["workers"])), "{}", detail["costs"]);
    let stages = detail["costs"]["stages"].as_object().into_iter().flatten().filter_map(|(_, cost)| cost.as_f64());
    ensure!(is_all(stages.sum()), "{}", detail["costs"]);
    ensure!(detail["costs"]["workers"].as_array().is_some_and(|workers| workers.len() == 3), "{detail}");
    let user = User::of(&client)?;
    let report = user.json(&["job", "cost", "one"])?;
    ensure!(is_all(sum(&report["stages"])) && is_all(sum(&report["workers"])), "{report}");
    ensure!(report["elsewhere"] == 0.0 && report["rented"]["dearer"].as_f64() > Some(0.0), "{report}");
    let report = user.json(&["job", "cost", "one", "--rented", "c5.large"])?;
    ensure!(report["rented"]["machine"] == "c5.large", "{report}");
    let wrong = user.weft(&["job", "cost", "one", "--rented", "mainframe"])?;
    ensure!(wrong.code == Some(2) && wrong.stderr.contains("g4dn.xlarge"), "{wrong:?}");
    let text = user.must(&["job", "cost", "one"])?;
    ensure!(["By stage", "compute", "By worker", "Beside a rented"].iter().all(|word| text.contains(word)), "{text}");
    ensure!(user.must(&["job", "show", "one"])?.contains("of that"));
    Ok(())
}
