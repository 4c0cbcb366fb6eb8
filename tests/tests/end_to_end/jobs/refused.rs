//! Jobs that cannot be are refused when they are asked for, with the reason.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weft_tests::components::{component, echo};

use super::{lenet, node};

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

#[test]
fn classes_that_the_model_does_not_have_are_refused() -> Result<()> {
    let (_node, client) = node()?;
    let answer = client.submit(&lenet(json!({ "params": { "classes": "9" } })))?;
    ensure!(answer.status == 422, "{answer:?}");
    ensure!(answer.problem()?.detail.contains("10 classes"), "{answer:?}");
    Ok(())
}
