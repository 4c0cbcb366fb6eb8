//! Jobs that cannot be are refused when they are asked for, with the reason.

use std::io::Cursor;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::model::{Dtype, Meta, Model, TensorInfo, write};
use weft_tests::command::{Ended, User};
use weft_tests::components::{component, echo};
use weft_tests::http::Client;
use weft_tests::node::Options;

use super::{LONG, lenet, node, prepare};

#[test]
fn every_wrong_combination_is_refused_with_the_word_that_is_wrong() -> Result<()> {
    let (_node, client) = node()?;
    client.must_deploy("mlp", &component("functions/mlp")?)?;
    client.must_deploy("echo", &echo()?)?;
    let cases: [(Value, &str); 14] = [
        (json!({ "k": 0 }), "`k`"),
        (json!({ "workers": 4, "batch": 600 }), "`batch`"),
        (json!({ "workers": 0 }), "`workers`"),
        (json!({ "epochs": 0 }), "`epochs`"),
        (json!({ "lr": -1.0 }), "`lr`"),
        (json!({ "rule": "k-average" }), "`k`"),
        (json!({ "rule": "statistic-sum" }), "`rule`"),
        (json!({ "params": { "nonsense": "1" } }), "`params`"),
        (json!({ "device": "toaster" }), "`device`"),
        (json!({ "memory": 1_u64 << 43 }), "`memory`"),
        (json!({ "goal_accuracy": 1.5 }), "`goal_accuracy`"),
        (json!({ "function": "mlp" }), "does not take data set"),
        (json!({ "function": "echo" }), "`function`"),
        (json!({ "dataset": null }), "`dataset`"),
    ];
    for (wrong, word) in cases {
        let answer = client.submit(&lenet(wrong.clone()))?;
        ensure!((400..500).contains(&answer.status), "{wrong}: {answer:?}");
        let detail = answer.problem()?.detail;
        ensure!(detail.contains(word), "{wrong}: {detail}");
    }
    let unknown = client.submit(&lenet(json!({ "epoch": 3 })))?;
    ensure!(unknown.status == 400 && unknown.text().contains("epoch"), "{unknown:?}");
    let jobs = client.get("/v1/jobs")?.json()?;
    ensure!(jobs["jobs"].as_array().is_some_and(Vec::is_empty), "{jobs}");
    Ok(())
}

/// A model of lenet, and the same with a tensor more.
fn models(client: &Client) -> Result<[Vec<u8>; 2]> {
    client.must_train(&lenet(json!({ "name": "plain", "epochs": 1 })), LONG)?;
    let plain = client.model_file("plain")?;
    let mut model = Model::open(Cursor::new(&plain))?;
    let mut tensors: Vec<TensorInfo> = model.tensors().cloned().collect();
    let names: Vec<String> = tensors.iter().map(|tensor| tensor.name.clone()).collect();
    let mut numbers: Vec<Vec<u8>> = names.iter().map(|name| model.tensor(name)).collect::<Result<_, _>>()?;
    tensors.push(TensorInfo { name: "odd.weight".to_owned(), dtype: Dtype::F32, shape: vec![1] });
    numbers.push(vec![0; 4]);
    let mut odd = Vec::new();
    write(&tensors, numbers.into_iter().map(Ok), &Meta::default(), &mut odd)?;
    Ok([plain, odd])
}

fn model_names(client: &Client) -> Result<Vec<String>> {
    let models = client.get("/v1/models")?.json()?;
    let models = models["models"].as_array().context("no models")?;
    Ok(models.iter().filter_map(|model| model["name"].as_str().map(str::to_owned)).collect())
}

#[test]
fn a_model_with_tensors_that_are_not_declared_is_refused_and_is_not_left_behind() -> Result<()> {
    let (_node, client) = node()?;
    let [plain, odd] = models(&client)?;
    let user = User::of(&client)?;
    let start = |name: &str, file: &[u8]| -> Result<Ended> {
        let file = user.file(name, file)?.display().to_string();
        user.weft(&[
            "train",
            "lenet",
            "--dataset",
            "digits",
            "--epochs",
            "1",
            "--memory",
            "64MiB",
            "--init-from",
            &file,
        ])
    };
    let refused = start("odd.safetensors", &odd)?;
    ensure!(refused.code != Some(0), "{refused:?}");
    for word in ["`init_from`", "`odd.weight`", "does not declare"] {
        ensure!(refused.stderr.contains(word), "`{word}`: {refused:?}");
    }
    ensure!(model_names(&client)? == ["plain"], "{:?}", model_names(&client)?);
    // What fits is taken, and stays.
    let taken = start("plain.safetensors", &plain)?;
    ensure!(taken.code == Some(0), "{taken:?}");
    ensure!(model_names(&client)?.iter().any(|name| name.starts_with("plain-")), "{:?}", model_names(&client)?);
    // On the machine alone it is the same.
    let file = user.home().join("odd.safetensors").display().to_string();
    let function = user.file("lenet.wasm", &*component("functions/lenet")?)?.display().to_string();
    let alone = user.weft(&["train-local", &function, "--dataset", "digits", "--epochs", "1", "--init-from", &file])?;
    ensure!(alone.code != Some(0) && alone.stderr.contains("`odd.weight`"), "{alone:?}");
    Ok(())
}

#[test]
fn classes_that_the_model_does_not_have_are_refused() -> Result<()> {
    let (_node, client) = node()?;
    // A number stands for its text.
    for classes in [json!("9"), json!(9)] {
        let answer = client.submit(&lenet(json!({ "params": { "classes": classes } })))?;
        ensure!(answer.status == 422, "{answer:?}");
        ensure!(answer.problem()?.detail.contains("10 classes"), "{answer:?}");
    }
    Ok(())
}

/// Whatever a trainer waits for before it has said anything, its time ends it.
#[test]
fn trainers_that_sleep_before_they_say_what_they_are_are_refused_in_time() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("sleepy", json!({ "wall_ms": 1_000 }))?;
    prepare(&client)?;
    for guest in ["sleeps-at-start", "sleeps-in-describe"] {
        client.must_deploy(guest, &component(&format!("tests/guests/{guest}"))?)?;
        let asked = Instant::now();
        let answer = client.submit(&lenet(json!({ "function": guest })))?;
        ensure!(answer.status == 422 && answer.problem()?.detail.contains("`wall_ms` = 1000"), "{guest}: {answer:?}");
        ensure!(asked.elapsed() < Duration::from_secs(20), "{guest}: only after {:?}", asked.elapsed());
    }
    client.must_train(&lenet(json!({ "epochs": 1 })), LONG)?;
    Ok(())
}
