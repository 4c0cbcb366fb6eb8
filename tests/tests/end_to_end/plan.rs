//! `weft plan`: what training would take, found out by short real jobs.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weft_tests::command::User;
use weft_tests::node::{Node, Options};

use super::jobs::prepare;

fn node() -> Result<(Node, User)> {
    let node = Options::default().dev().start()?;
    prepare(&node.anybody())?;
    let user = User::of(&node.anybody())?;
    Ok((node, user))
}

const LENET: [&str; 11] =
    ["plan", "lenet", "--dataset", "digits", "--batch", "32", "--workers", "1..2", "--memory", "64MiB", "--sweep"];

/// What is recommended, which is one of the points.
fn recommended(report: &Value) -> Result<&Value> {
    let place = report["recommendation"]["point"].as_u64().context("nothing is recommended")?;
    report["points"].get(usize::try_from(place)?).context("what is recommended is no point")
}

fn expected(point: &Value, what: &str) -> f64 {
    point[what]["expected"].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn a_sweep_recommends_one_of_its_points_and_leaves_nothing() -> Result<()> {
    let (node, user) = node()?;
    let report = user.json(&[&LENET[..], &["--epochs", "7", "--svg", "plan.svg", "--k", "1,4"]].concat())?;
    ensure!(report["profiling"]["tries"] == 4, "{report}");
    let best = recommended(&report)?;
    let points = report["points"].as_array().context("no points")?;
    ensure!(points.iter().all(|point| expected(best, "cost") <= expected(point, "cost")), "{report}");
    for point in points {
        for what in ["seconds", "cost"] {
            let [least, most] = ["least", "most"].map(|end| point[what][end].as_f64().unwrap_or(f64::NAN));
            ensure!(0.0 < least && least <= expected(point, what) && expected(point, what) <= most, "{point}");
        }
        ensure!(point["is_measured"] == true, "{point}");
    }
    let command = report["command"].as_str().context("no command")?;
    let workers = best["workers"].as_u64().context("no workers")?;
    ensure!(command.starts_with("weft train lenet --dataset digits"), "{command}");
    ensure!(workers == 1 || command.contains(&format!("--workers {workers}")), "{command}");
    ensure!(command.contains("--memory 64MiB") && command.contains("--epochs 7"), "{command}");
    let picture = std::fs::read_to_string(user.home().join("plan.svg"))?;
    ensure!(picture.starts_with("<svg") && picture.contains("(recommended)"), "{picture}");
    // It is the command line that would follow.
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let job = user.json(&[&words[..], &["--detach"]].concat())?;
    ensure!(job["epochs"] == 7, "{job}");
    let jobs = node.anybody().get("/v1/jobs")?.json()?;
    ensure!(jobs["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1), "tries are left: {jobs}");
    let models = node.anybody().get("/v1/models")?.json()?;
    let is_try = |model: &Value| model["name"].as_str().is_some_and(|name| name.starts_with("plan-"));
    ensure!(!models["models"].as_array().into_iter().flatten().any(is_try), "models of tries are left: {models}");
    Ok(())
}

#[test]
fn limits_decide_what_is_recommended() -> Result<()> {
    let (_node, user) = node()?;
    let report = user.json(&[&LENET[..], &["--deadline", "1h"]].concat())?;
    ensure!(report["recommendation"]["is_within"] == true, "{report}");
    let report = user.json(&[&LENET[..], &["--deadline", "1ms"]].concat())?;
    ensure!(report["recommendation"]["is_within"] == false, "{report}");
    let text = user.must(&[&LENET[..], &["--budget", "1000"]].concat())?;
    for words in ["WORKERS", "COST", "is the fastest for at most", "tried", "weft train lenet"] {
        ensure!(text.contains(words), "no `{words}` in {text}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_planned_says_why() -> Result<()> {
    let (_node, user) = node()?;
    for (arguments, code, words) in [
        (&["plan", "nobody", "--dataset", "digits", "--sweep"][..], 1, "nobody"),
        (&["plan", "lenet", "--dataset", "digits", "--budget", "0"], 2, "above 0"),
        (&["plan", "lenet", "--dataset", "digits", "--memory", "1GiB..1MiB"], 2, "empty range"),
        (&["plan", "lenet", "--dataset", "digits", "--sweep", "--workers", "1", "--try-for", "1ms"], 1, "--try-for"),
    ] {
        let ended = user.weft(arguments)?;
        ensure!(ended.code == Some(code) && ended.stderr.contains(words), "{arguments:?}: {ended:?}");
    }
    let jobs = user.json(&["jobs"])?;
    ensure!(jobs["jobs"].as_array().is_some_and(Vec::is_empty), "tries are left: {jobs}");
    Ok(())
}
