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

#[test]
fn a_node_looks_for_settings_by_itself() -> Result<()> {
    let (_node, user) = node()?;
    let report = user.json(&[
        "plan",
        "lenet",
        "--dataset",
        "digits",
        "--batch",
        "32",
        "--epochs",
        "300",
        "--workers",
        "1..4",
        "--memory",
        "64MiB..128MiB",
        "--seed",
        "1",
        "--deadline",
        "1h",
    ])?;
    let best = recommended(&report)?;
    ensure!(report["profiling"]["tries"].as_u64() >= Some(2), "{report}");
    let points = report["points"].as_array().context("no points")?;
    let is_beaten = |other: &Value| {
        expected(other, "seconds") < expected(best, "seconds") && expected(other, "cost") < expected(best, "cost")
    };
    ensure!(!points.iter().any(is_beaten), "{report}");
    let jobs = user.json(&["jobs"])?;
    ensure!(jobs["jobs"].as_array().is_some_and(Vec::is_empty), "the job that planned is left: {jobs}");
    Ok(())
}

#[test]
fn epochs_to_a_goal_are_counted_on_a_sample_that_is_deleted() -> Result<()> {
    let (_node, user) = node()?;
    let goal = [
        "--batch",
        "64",
        "--lr",
        "0.01",
        "--seed",
        "1",
        "--goal-accuracy",
        "0.7",
        "--workers",
        "1",
        "--memory",
        "64MiB",
    ];
    let report = user.json(&[&["plan", "lenet", "--dataset", "digits"], &goal[..]].concat())?;
    let estimate = &report["estimate"];
    ensure!(estimate["is_reached"] == true && estimate["expected"].as_f64() >= Some(1.0), "{report}");
    let epochs = estimate["expected"].as_f64().unwrap_or_default().ceil() as u64;
    ensure!(report["epochs"] == epochs, "{report}");
    let command = report["command"].as_str().context("no command")?;
    ensure!(command.contains("--goal-accuracy 0.7"), "{command}");
    let datasets = user.json(&["dataset", "list"])?;
    ensure!(datasets["datasets"].as_array().is_some_and(|all| all.len() == 1), "the sample is left: {datasets}");
    Ok(())
}

#[test]
fn a_sample_of_a_data_set_is_a_data_set() -> Result<()> {
    let (node, _user) = node()?;
    let client = node.anybody();
    let make = |name: &str, sample: Value| -> Result<_> {
        let body = serde_json::to_vec(&serde_json::json!({ "sample": sample }))?;
        client.send("PUT", &format!("/v1/datasets/{name}"), &[], &body)
    };
    let made = make("small", serde_json::json!({ "of": "digits", "part": 0.1, "seed": 3 }))?;
    ensure!(made.status == 201, "{made:?}");
    let small = client.get("/v1/datasets/small")?.json()?;
    ensure!(small["train"]["count"] == 144 && small["test"]["count"] == 359, "{small}");
    for (sample, words) in [
        (serde_json::json!({ "of": "digits", "part": 0.0 }), "`part` is 0"),
        (serde_json::json!({ "of": "digits", "part": 1.5 }), "`part` is 1.5"),
        (serde_json::json!({ "of": "nothing", "part": 0.5 }), "nothing"),
    ] {
        let refused = make("other", sample)?;
        ensure!((400..500).contains(&refused.status), "{refused:?}");
        let detail = refused.problem()?.detail;
        ensure!(detail.contains(words), "{detail}");
    }
    Ok(())
}

#[test]
fn what_was_measured_of_the_machine_predicts_and_answers_questions() -> Result<()> {
    let (_node, user) = node()?;
    let lenet = ["lenet", "--dataset", "digits", "--batch", "32", "--epochs", "5", "--memory", "64MiB"];
    let plan = |more: &[&str]| user.json(&[&["plan"], &lenet[..], more].concat());
    let missing = user.weft(&[&["plan"], &lenet[..], &["--model"]].concat())?;
    ensure!(missing.code == Some(1) && missing.stderr.contains("--calibrate"), "{missing:?}");
    let calibration = plan(&["--calibrate", "--workers", "1..2"])?;
    for channel in ["memory", "store", "blobs"] {
        let link = &calibration["channels"][channel];
        ensure!(link["bandwidth"]["value"].as_f64() > Some(0.0), "{calibration}");
        ensure!(link["latency"]["value"].as_f64() > Some(0.0), "{calibration}");
    }
    ensure!(calibration["start"].as_array().is_some_and(|starts| starts.len() == 2), "{calibration}");
    let model = plan(&["--model", "--workers", "1..2"])?;
    let predictions = model["predictions"].as_array().context("no predictions")?;
    ensure!(predictions.len() == 2 && predictions[1]["workers"] == 2, "{model}");
    ensure!(model["work"]["model"].as_f64() > Some(0.1), "{model}");
    let asked = plan(&["--preset", "faas-s3", "--workers", "2", "--what-if", "bandwidth=10GB/s"])?;
    let row = &asked["predictions"][0];
    ensure!(row["asked"]["seconds"].as_f64() < row["seconds"].as_f64(), "{asked}");
    ensure!(plan(&["--preset", "lambdaml", "--workers", "2"])?["predictions"].as_array().map(Vec::len) == Some(4));
    let wrong = user.weft(&[&["plan"], &lenet[..], &["--what-if", "speed=3"]].concat())?;
    ensure!(wrong.code == Some(2) && wrong.stderr.contains("`storage-latency`"), "{wrong:?}");
    // What was calculated stands beside what came.
    user.must(&[&["train"], &lenet[..], &["--name", "done", "--quiet"]].concat())?;
    let report = user.json(&["job", "cost", "done"])?;
    ensure!(report["prediction"]["measured"].as_f64() > Some(0.0), "{report}");
    ensure!(report["prediction"]["is_calibrated"] == true, "{report}");
    Ok(())
}
