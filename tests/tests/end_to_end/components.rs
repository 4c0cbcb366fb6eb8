//! Components as they come: one that was built long ago, one that is built now, and one of a project that was just made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use weft_tests::command::User;
use weft_tests::components;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

/// The digest of the component that must never be built again.
const STORED: &str = "sha256:f4d08f643daeeb95206b18d4649bc5de101fc29bc832d02228b83b6554f53972";

/// A node that runs the component of the first contract.
fn stored() -> Result<(Node, Client)> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("old", &components::stored()?)?;
    Ok((node, client))
}

fn facts(client: &Client, seed: &str) -> Result<(BTreeMap<String, String>, weft_tests::http::Answer)> {
    let answer = client.send("POST", "/v1/functions/old/invoke", &[("weft-seed", seed)], b"facts")?;
    ensure!(answer.status == 200, "{answer:?}");
    let text = answer.text();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Ok((pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), answer))
}

#[test]
fn the_stored_component_is_the_one_that_was_stored() -> Result<()> {
    let digest = weft::digest::Digest::of(&components::stored()?).to_string();
    ensure!(digest == STORED, "`tests/stored/task-0.1.0.wasm` was replaced: it is {digest} now");
    Ok(())
}

#[test]
fn the_stored_component_is_told_every_fact() -> Result<()> {
    let (_node, client) = stored()?;
    let (facts, answer) = facts(&client, "7")?;
    let header = |name| answer.header(name).with_context(|| format!("no {name}"));
    ensure!(facts["id"] == header("weft-invocation")?, "{facts:?}");
    ensure!(facts["function-name"] == "old", "{facts:?}");
    ensure!(facts["function-version"] == header("weft-version")?, "{facts:?}");
    ensure!(facts["seed"] == "7" && header("weft-seed")? == "7", "{facts:?}");
    ensure!(facts["random-bytes"].len() == 32, "{facts:?}");
    let left: u64 = facts["time-left"].parse()?;
    ensure!((1..=60_000_000_000).contains(&left), "{facts:?}");
    ensure!(facts["should-stop"] == "false", "{facts:?}");
    Ok(())
}

#[test]
fn the_stored_component_draws_the_same_numbers_from_the_same_seed() -> Result<()> {
    let (_node, client) = stored()?;
    let drawn = |seed| -> Result<_> {
        let (facts, _) = facts(&client, seed)?;
        Ok((facts["random-u64"].clone(), facts["random-bytes"].clone()))
    };
    let (first, again, other) = (drawn("7")?, drawn("7")?, drawn("8")?);
    ensure!(first == again && first.0 != other.0 && first.1 != other.1, "{first:?} {again:?} {other:?}");
    Ok(())
}

#[test]
fn the_stored_component_logs_at_every_level() -> Result<()> {
    let (_node, client) = stored()?;
    ensure!(client.must_invoke("old", "log")? == "4");
    let log = client.get("/v1/functions/old/logs")?.json()?;
    let lines = log["lines"].as_array().context("no lines")?;
    let said: Vec<_> = lines.iter().map(|line| (line["level"].as_str(), line["message"].as_str())).collect();
    let levels = ["debug", "info", "warn", "error"];
    let messages = levels.map(|level| format!("a line at {level}"));
    let expected: Vec<_> =
        levels.iter().zip(&messages).map(|(level, text)| (Some(*level), Some(text.as_str()))).collect();
    ensure!(said == expected, "{log}");
    Ok(())
}

#[test]
fn the_stored_component_gets_as_many_random_bytes_as_it_asks_for() -> Result<()> {
    let (_node, client) = stored()?;
    for length in [0, 1, 1000] {
        ensure!(client.invoke("old", format!("random:{length}").as_bytes())?.body.len() == length);
    }
    Ok(())
}

#[test]
fn the_stored_component_is_refused_too_many_random_bytes() -> Result<()> {
    let node = Options::default().dev().set("max-payload", "1KiB").start()?;
    node.anybody().must_deploy("old", &components::stored()?)?;
    let answer = node.anybody().invoke("old", b"random:2000")?;
    ensure!(answer.status == 422 && answer.problem()?.function_error.as_deref() == Some("quota"), "{answer:?}");
    Ok(())
}

#[test]
fn the_stored_component_fails_with_every_case_of_error() -> Result<()> {
    let (_node, client) = stored()?;
    let with_text =
        ["bad-input", "bad-shape", "quota", "out-of-device-memory", "device-lost", "not-found", "conflict", "other"];
    for case in with_text.iter().chain(&["cancelled"]) {
        let problem = client.invoke("old", format!("error:{case}").as_bytes())?.problem()?;
        ensure!(problem.status == 422 && problem.function_error.as_deref() == Some(case), "`{case}`: {problem:?}");
        let text = format!("told to fail with `{case}`");
        ensure!(*case == "cancelled" || problem.detail == text, "`{case}`: {problem:?}");
    }
    Ok(())
}

#[test]
fn the_stored_components_panic_is_told_to_its_caller() -> Result<()> {
    let (_node, client) = stored()?;
    let answer = client.invoke("old", b"panic")?;
    ensure!(answer.status == 502 && answer.problem_kind()?.0 == "function-trapped", "{answer:?}");
    ensure!(answer.problem()?.detail.contains("told to panic"), "{answer:?}");
    Ok(())
}

#[test]
fn the_stored_component_keeps_content_types() -> Result<()> {
    let (_node, client) = stored()?;
    let headers = [("content-type", "application/x-thing")];
    let answer = client.send("POST", "/v1/functions/old/invoke", &headers, b"\x00\xff")?;
    ensure!(answer.header("content-type") == Some("application/x-thing") && answer.body == b"\x00\xff", "{answer:?}");
    Ok(())
}

#[test]
fn a_component_that_is_built_now_answers() -> Result<()> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &components::echo()?)?;
    ensure!(node.anybody().must_invoke("echo", "hello")? == "hello");
    Ok(())
}

/// Made by `weft new`, in a folder that has nothing to do with this repository. What cargo makes of it is kept from one
/// run to the next, and its dependencies are those that this repository is locked to.
fn new_project(user: &User, name: &str, kind: &[&str]) -> Result<PathBuf> {
    user.must(&[&["new", name], kind].concat())?;
    let project = user.home().join(name);
    std::fs::copy(components::repository().join("Cargo.lock"), project.join("Cargo.lock"))?;
    Ok(project)
}

/// Beside what cargo makes of the tests themselves.
fn target_folder() -> Result<String> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).context("no target folder")?;
    Ok(target.join("projects").display().to_string())
}

#[test]
fn a_new_project_builds_deploys_and_answers() -> Result<()> {
    let node = Options::default().dev().start()?;
    let user = User::of(&node.anybody())?.with("CARGO_TARGET_DIR", &target_folder()?);
    let project = new_project(&user, "word-count", &[])?.display().to_string();
    let built = user.json(&["build", &project])?;
    ensure!(built["name"] == "word-count", "{built}");
    let component = built["path"].as_str().context("no path")?.to_owned();
    ensure!(user.json(&["deploy", &component])?["outcome"] == "created");
    ensure!(user.must(&["invoke", "word-count", "--data", "three little words"])? == "3\n");
    ensure!(user.must(&["logs", "word-count"])?.contains("counted 3 words"));
    // The folder itself is built first; nothing has changed since.
    ensure!(user.json(&["deploy", &project])?["outcome"] == "unchanged");
    Ok(())
}

fn passes_its_own_test(name: &str, kind: &[&str]) -> Result<()> {
    let user = User::new()?;
    let project = new_project(&user, name, kind)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--quiet"]).current_dir(&project).env("CARGO_TARGET_DIR", target_folder()?);
    let output = cargo.output()?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
    ensure!(!errors.contains("warning"), "{errors}");
    Ok(())
}

#[test]
fn a_new_project_passes_its_own_test() -> Result<()> {
    passes_its_own_test("tested", &[])
}

#[test]
fn a_new_trainer_passes_its_own_test() -> Result<()> {
    passes_its_own_test("tested-trainer", &["--trainer"])
}

#[test]
fn a_new_trainer_learns_digits() -> Result<()> {
    let user = User::new()?.with("CARGO_TARGET_DIR", &target_folder()?);
    let project = new_project(&user, "spot", &["--trainer"])?.display().to_string();
    let model = user.home().join("spot.safetensors").display().to_string();
    let on_digits = ["--dataset", "digits", "--device", "cpu"];
    let trained = user.json(&[&["train-local", &project, "--output", &model], &on_digits[..]].concat())?;
    let accuracy = trained["epochs"].as_array().and_then(|epochs| epochs.last()?["validation"]["accuracy"].as_f64());
    ensure!(accuracy.is_some_and(|accuracy| accuracy > 0.93), "{trained}");
    let inferred = user.json(&[&["infer", &project, "--model", &model], &on_digits[..]].concat())?;
    ensure!(inferred["metrics"]["accuracy"].as_f64() == accuracy, "{}", inferred["metrics"]);
    Ok(())
}
