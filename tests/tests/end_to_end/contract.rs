//! What a function is promised, and what it is not given.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::held::Held;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};
use weft_tests::{components, guests};

/// A node whose developer has deployed the function that does as it is told.
fn hostile() -> Result<(Node, Client)> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("hostile", &components::hostile()?)?;
    Ok((node, client))
}

fn hand_written(name: &str) -> Result<(Node, Client)> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy(name, &guests::wat(name)?)?;
    Ok((node, client))
}

fn seeded(client: &Client, seed: u64) -> Result<String> {
    let path = "/v1/functions/hostile/invoke";
    let answer = client.send("POST", path, &[("weft-seed", &seed.to_string())], b"seed")?;
    ensure!(answer.header("weft-seed") == Some(&seed.to_string()), "{answer:?}");
    Ok(answer.text())
}

#[test]
fn every_invocation_meets_a_fresh_instance() -> Result<()> {
    let (_node, client) = hostile()?;
    for _ in 0..20 {
        ensure!(client.must_invoke("hostile", "state")? == "1");
    }
    Ok(())
}

#[test]
fn each_case_of_error_is_named_to_the_caller() -> Result<()> {
    let (_node, client) = hostile()?;
    let cases = [
        "bad-input",
        "bad-shape",
        "quota",
        "out-of-device-memory",
        "cancelled",
        "device-lost",
        "not-found",
        "conflict",
        "other",
    ];
    for case in cases {
        let answer = client.invoke("hostile", format!("error:{case}").as_bytes())?;
        let problem = answer.problem()?;
        ensure!(problem.status == 422 && problem.kind == "urn:weft:problem:function-error", "{problem:?}");
        ensure!(problem.function_error.as_deref() == Some(case), "`{case}` became {problem:?}");
        ensure!(case == "cancelled" || problem.detail == format!("told to fail with `{case}`"), "{problem:?}");
    }
    Ok(())
}

#[test]
fn a_panic_is_in_the_answer_and_in_the_log_of_that_invocation() -> Result<()> {
    let (_node, client) = hostile()?;
    let problem = client.invoke("hostile", b"panic")?.problem()?;
    ensure!(problem.detail.contains("told to panic"), "{problem:?}");
    let invocation = problem.invocation.context("no invocation in the problem")?;
    let log = client.log("hostile")?;
    let said = log.iter().any(|line| line.invocation == invocation && line.message.contains("told to panic"));
    ensure!(said, "{log:?}");
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_numbers() -> Result<()> {
    let (_node, client) = hostile()?;
    let numbers = seeded(&client, 7)?;
    ensure!(numbers.starts_with("7\n") && numbers == seeded(&client, 7)?, "{numbers}");
    Ok(())
}

#[test]
fn another_seed_gives_other_numbers() -> Result<()> {
    let (_node, client) = hostile()?;
    let numbers =
        |seed| -> Result<Vec<String>> { Ok(seeded(&client, seed)?.lines().skip(1).map(str::to_owned).collect()) };
    let (seven, eight) = (numbers(7)?, numbers(8)?);
    ensure!(seven.len() == 4 && seven.iter().all(|number| !eight.contains(number)), "{seven:?} {eight:?}");
    Ok(())
}

#[test]
fn without_a_seed_each_invocation_has_its_own() -> Result<()> {
    let (_node, client) = hostile()?;
    ensure!(client.must_invoke("hostile", "seed")? != client.must_invoke("hostile", "seed")?);
    Ok(())
}

#[test]
fn a_function_knows_what_its_caller_is_told() -> Result<()> {
    let (_node, client) = hostile()?;
    let answer = client.invoke("hostile", b"facts")?;
    let header = |name| answer.header(name).with_context(|| format!("no {name} in {answer:?}"));
    let expected = format!(
        "{}\nhostile\n{}\n{}\nfalse\n",
        header("weft-invocation")?,
        header("weft-version")?,
        header("weft-seed")?
    );
    ensure!(answer.text() == expected, "{answer:?}");
    Ok(())
}

#[test]
fn the_time_that_is_left_runs_down() -> Result<()> {
    let (_node, client) = hostile()?;
    ensure!(client.must_invoke("hostile", "sleep-busy:20")? == "20");
    Ok(())
}

#[test]
fn a_function_is_told_to_stop_when_the_node_stops() -> Result<()> {
    let (node, client) = hostile()?;
    let answer = std::thread::spawn(move || client.invoke("hostile", b"stop"));
    let operator = node.anybody();
    eventually(Duration::from_secs(10), || Ok(operator.get("/v1/node")?.json()?["instances"] == 1))?;
    node.stop()?;
    let problem = answer.join().map_err(|_| anyhow::anyhow!("the caller panicked"))??.problem()?;
    ensure!(problem.function_error.as_deref() == Some("cancelled"), "{problem:?}");
    Ok(())
}

#[test]
fn a_request_for_as_much_randomness_as_is_allowed_is_met() -> Result<()> {
    let (_node, client) = hostile()?;
    ensure!(client.must_invoke("hostile", "random:1000000")? == "1000000");
    Ok(())
}

#[test]
fn standard_output_goes_to_the_log() -> Result<()> {
    let (_node, client) = hand_written("wasi-stdout")?;
    client.must_invoke("wasi-stdout", "")?;
    let log = client.log("wasi-stdout")?;
    ensure!(log.iter().any(|line| line.message == "hello from stdout"), "{log:?}");
    Ok(())
}

#[test]
fn a_sleep_that_fits_comes_to_its_end() -> Result<()> {
    let (_node, client) = hand_written("wasi-sleep")?;
    ensure!(client.must_invoke("wasi-sleep", "1")? == "ok");
    Ok(())
}

#[test]
fn sleeping_costs_no_cpu_time() -> Result<()> {
    let (_node, client) = hand_written("wasi-sleep")?;
    client.must_invoke("wasi-sleep", "1")?;
    let usage = client.usage()?.usage;
    ensure!(usage.cpu_us < 100_000, "{usage:?}");
    Ok(())
}

#[test]
fn wasi_gives_no_variables_no_arguments_and_no_folders() -> Result<()> {
    let (_node, client) = hand_written("wasi-nothing")?;
    ensure!(client.must_invoke("wasi-nothing", "")? == "000");
    Ok(())
}

#[test]
fn compiled_code_larger_than_the_operator_allows_is_refused() -> Result<()> {
    let node = Options::default().dev().set("max-artifact", "4KiB").start()?;
    let answer = node.anybody().deploy("echo", &components::echo()?)?;
    ensure!(answer.problem_kind()? == ("compile-limit".to_owned(), Some("max_artifact".to_owned())), "{answer:?}");
    Ok(())
}

#[test]
fn instances_of_one_tenant_share_its_memory() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({ "memory": 24 << 20, "instance_memory": 64 << 20 }))?;
    tenant.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    tenant.must_invoke("hostile", "alloc:16000000")?;
    // Each sleeper holds two pages, so that 64 of them hold 8 MiB.
    let _sleepers = Held::invoke_all(&tenant, "sleep", "", 63)?;
    eventually(Duration::from_secs(10), || Ok(node.view()?.instances == 63))?;
    let answer = tenant.invoke("hostile", b"alloc:20000000")?;
    ensure!(answer.problem_kind()? == ("limit-exceeded".to_owned(), Some("memory".to_owned())), "{answer:?}");
    Ok(())
}
