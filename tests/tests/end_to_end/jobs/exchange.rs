//! Every way to exchange what workers have: the same bits where they are promised, and learning everywhere else.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::job::{EpochRecord, Stages};
use weft_tests::components::component;
use weft_tests::http::Client;

use super::{LONG, lenet, node, weights};

/// The last accuracy of a job.
fn accuracy(client: &Client, job: &str) -> Result<f64> {
    let history = client.get(&format!("/v1/jobs/{job}/history"))?.json()?;
    let epochs = history["epochs"].as_array().context("no epochs")?;
    let accuracies = epochs.iter().filter_map(|epoch| epoch["validation"]["accuracy"].as_f64());
    accuracies.max_by(f64::total_cmp).context("no accuracy")
}

fn way(name: &str, rule: &Value, sync: Value) -> Value {
    let mut words = rule.clone();
    if let (Some(words), Some(sync)) = (words.as_object_mut(), sync.as_object()) {
        words.extend(sync.clone());
    }
    lenet(json!({ "name": name, "workers": 4, "epochs": 2, "sync": words }))
}

#[test]
fn every_topology_through_every_channel_gives_the_bits_of_memory() -> Result<()> {
    let (_node, client) = node()?;
    let rules = [("gradient", json!({ "rule": "gradient-average" })), ("k", json!({ "k": 5 }))];
    for (kind, rule) in rules {
        let plain = format!("{kind}-plain");
        client.must_train(&way(&plain, &rule, json!({})), LONG)?;
        let expected = weights(&client, &plain)?;
        for (topology, channel) in [
            ("memory", "store"),
            ("memory", "blobs"),
            ("leader", "memory"),
            ("scatter", "memory"),
            ("scatter:7", "store"),
            ("peers", "memory"),
            ("peers", "store"),
            ("leader", "blobs"),
            ("leader", "store"),
            ("scatter", "blobs"),
            ("peers", "blobs"),
        ] {
            let name = format!("{kind}-{}-{channel}", topology.replace(':', "-"));
            let sync = json!({ "topology": topology, "channel": channel });
            let detail = client.must_train(&way(&name, &rule, sync), LONG)?;
            ensure!(weights(&client, &name)? == expected, "{name} has other bits than {plain}");
            ensure!(detail.history[0].traffic.items > 0, "{name}: {:?}", detail.history[0].traffic);
            // Where workers take the optimizer's steps themselves, the first one's model is compared after each checkpoint.
            let replicas = detail.history[1].replicas;
            let compared = u64::from(kind == "gradient" && topology != "memory");
            ensure!((replicas.compared, replicas.differed) == (compared, 0), "{name}: {replicas:?}");
        }
        // A tree adds in another order: the same one through every channel.
        let mut trees = Vec::new();
        for channel in ["memory", "store", "blobs"] {
            let name = format!("{kind}-tree-{channel}");
            client.must_train(&way(&name, &rule, json!({ "topology": "tree:1,2,4", "channel": channel })), LONG)?;
            trees.push(weights(&client, &name)?);
        }
        ensure!(trees.iter().all(|tree| *tree == trees[0]), "the trees of {kind} differ");
    }
    let left = client.get("/v1/params")?.json()?;
    ensure!(left["params"] == json!([]) && left["jobs"] == json!([]), "{left}");
    Ok(())
}

#[test]
fn the_four_steps_of_workers_that_merge_are_timed_and_no_second_twice() -> Result<()> {
    let (_node, client) = node()?;
    let steps = |topology: &str, channel: &str| -> Result<([f64; 4], f64, f64)> {
        let name = format!("timed-{topology}-{channel}");
        let rule = json!({ "rule": "gradient-average" });
        let detail =
            client.must_train(&way(&name, &rule, json!({ "topology": topology, "channel": channel })), LONG)?;
        let mut stages = Stages::default();
        detail.history.iter().for_each(|epoch| stages.add(&epoch.stages));
        let Stages { put_parts, get_parts, put_results, get_results, .. } = stages;
        let all = stages.named().iter().map(|(_, seconds)| seconds).sum();
        // Four workers and the coordinator have no more seconds than the job five times.
        let passed = 5.0 * detail.history.iter().map(|epoch| epoch.seconds).sum::<f64>();
        Ok(([put_parts, get_parts, put_results, get_results], all, passed))
    };
    for (topology, channel) in [("scatter", "memory"), ("scatter", "store"), ("leader", "store")] {
        let (four, all, passed) = steps(topology, channel)?;
        ensure!(four.iter().all(|seconds| *seconds > 0.0), "{topology} through {channel}: {four:?}");
        ensure!(all <= passed, "{topology} through {channel}: {all} s of {passed} s");
    }
    for channel in ["memory", "store"] {
        let (four, _, _) = steps("memory", channel)?;
        ensure!(four == [0.0; 4], "memory through {channel}: {four:?}");
    }
    Ok(())
}

/// With five seeds each. What it prints is in docs/strategies.md.
#[test]
fn lenet_learns_at_every_pace() -> Result<()> {
    const GOAL: f64 = 0.95;
    let (_node, client) = node()?;
    let mut missed = Vec::new();
    for (name, lr, sync) in [
        ("barrier", 0.02, json!({})),
        ("average", 0.02, json!({ "k": 4 })),
        // Gradients that are applied one by one are not divided by the workers, and momentum makes more of old ones.
        ("on-arrival", 0.002, json!({ "pace": "on-arrival" })),
        ("stale", 0.002, json!({ "pace": "staleness:2" })),
        ("overwrite", 0.02, json!({ "pace": "overwrite", "k": 4 })),
        ("quorum", 0.01, json!({ "pace": "quorum:3,10" })),
        ("arrival-qsgd", 0.002, json!({ "pace": "on-arrival", "codec": "qsgd:8" })),
    ] {
        let (mut epochs, mut seconds) = (Vec::new(), 0.0);
        for seed in 1..=5 {
            let name = format!("{name}-{seed}");
            let spec = json!({
                "name": name, "workers": 4, "epochs": 60, "lr": lr, "seed": seed, "sync": sync, "goal_accuracy": GOAL,
            });
            let history = client.must_train(&lenet(spec), LONG)?.history;
            for epoch in &history {
                let staleness = epoch.mean_staleness.zip(epoch.max_staleness);
                let is_free = sync.get("pace").is_some();
                ensure!(staleness.is_some() == is_free, "{name}: {staleness:?}");
                ensure!(
                    staleness.is_none_or(|(mean, most)| 0.0 <= mean && mean <= most as f64),
                    "{name}: {staleness:?}"
                );
            }
            let reached = accuracy(&client, &name)?;
            epochs.push(history.len());
            seconds += history.iter().map(|epoch| epoch.seconds).sum::<f64>();
            if reached < GOAL {
                missed.push((name, reached));
            }
        }
        println!("{name}, rate {lr}: {GOAL} after {epochs:?} epochs, {:.2} s each time", seconds / 5.0);
    }
    ensure!(missed.is_empty(), "{missed:?}");
    Ok(())
}

#[test]
fn weights_are_averaged_as_seldom_as_asked() -> Result<()> {
    let (_node, client) = node()?;
    for k in ["epoch", "2epochs", "end"] {
        let spec = lenet(json!({ "name": format!("k-{k}"), "workers": 3, "epochs": 4, "sync": { "k": k } }));
        client.must_train(&spec, LONG)?;
        ensure!(accuracy(&client, &format!("k-{k}"))? > 0.3, "{k}");
    }
    ensure!(weights(&client, "k-end")? != weights(&client, "k-2epochs")?);
    for codec in ["qsgd:8", "top-k:0.2", "f16"] {
        let name = format!("codec-{}", codec.split(':').next().unwrap_or_default());
        let sync = json!({ "k": 8, "codec": codec });
        client.must_train(&lenet(json!({ "name": name, "workers": 3, "epochs": 10, "sync": sync })), LONG)?;
        ensure!(accuracy(&client, &name)? > 0.6, "{codec}: {}", accuracy(&client, &name)?);
    }
    Ok(())
}

#[test]
fn workers_that_die_change_no_bits_whoever_merges() -> Result<()> {
    let (_node, client) = node()?;
    for topology in ["leader", "scatter", "tree:1,2,4", "peers"] {
        let word = topology.split(':').next().unwrap_or_default();
        let spec = |name: &str| {
            let sync = json!({ "rule": "gradient-average", "topology": topology, "channel": "store" });
            lenet(json!({ "name": name, "workers": 4, "epochs": 12, "sync": sync }))
        };
        let [calm, disturbed] = ["calm", "disturbed"].map(|what| format!("{what}-{word}"));
        client.must_train(&spec(&calm), LONG)?;
        client.must_submit(&spec(&disturbed))?;
        for (epoch, worker) in [(1, 0), (2, 3), (3, 1)] {
            client.job_until(&disturbed, LONG, |detail| detail.job.epoch >= epoch)?;
            let killed = client.order(&disturbed, &format!("workers/{worker}/kill"))?;
            ensure!(killed.status == 204, "{topology}: {killed:?}");
        }
        let detail = client.must_finish(&disturbed, LONG)?;
        ensure!(detail.losses >= 2, "{topology}: {} losses", detail.losses);
        ensure!(weights(&client, &calm)? == weights(&client, &disturbed)?, "{topology}: other bits");
    }
    Ok(())
}

#[test]
fn a_whole_epoch_is_one_step_with_the_gradient_of_one_large_batch() -> Result<()> {
    let (_node, client) = node()?;
    let train = |name: &str, more: Value| -> Result<Vec<EpochRecord>> {
        let mut spec = lenet(json!({ "name": name, "workers": 2, "epochs": 4, "lr": 0.1, "memory": 512 << 20 }));
        spec.as_object_mut().context("no words")?.extend(more.as_object().cloned().unwrap_or_default());
        Ok(client.must_train(&spec, LONG)?.history)
    };
    // A shard has 719 samples.
    let large = train("large", json!({ "batch": 719 }))?;
    // The last is the run of 240 batches by each worker.
    for (name, batch) in [("whole", 16), ("many", 3)] {
        let whole = train(name, json!({ "fan_out": "epoch", "batch": batch }))?;
        for (one, other) in whole.iter().zip(&large) {
            ensure!(one.steps == 1 && one.samples == 1_438 && other.steps == 1, "{name}: {one:?}, {other:?}");
            let apart = (one.train_loss - other.train_loss).abs();
            ensure!(apart < 1e-4 * other.train_loss, "{name}: {} and {}", one.train_loss, other.train_loss);
        }
        ensure!(whole.len() == 4 && whole[3].train_loss < whole[0].train_loss, "{name}: {whole:?}");
    }
    Ok(())
}

#[test]
fn an_optimizer_may_be_another_than_the_function_declares() -> Result<()> {
    let (_node, client) = node()?;
    let adam = json!({ "name": "adam", "workers": 2, "epochs": 4, "lr": 0.003, "optimizer": { "kind": "adam" }, "global_batch": 32 });
    let detail = client.must_train(&lenet(adam), LONG)?;
    ensure!(detail.history[0].batch == 16, "{:?}", detail.history[0]);
    ensure!(accuracy(&client, "adam")? > 0.8, "{}", accuracy(&client, "adam")?);
    Ok(())
}

#[test]
fn admm_penalises_no_biases_and_nothing_that_a_job_names() -> Result<()> {
    let (_node, client) = node()?;
    client.must_deploy("logreg", &component("functions/logistic-regression")?)?;
    let train = |name: &str, unpenalised: Value| {
        let sync = json!({
            "rule": "admm", "rho": 0.1, "lambda": 1_000, "penalty": "l1", "inner_epochs": 1, "unpenalised": unpenalised,
        });
        lenet(json!({
            "name": name, "function": "logreg", "workers": 2, "epochs": 2, "sync": sync,
            "params": { "features": 64, "classes": 10 },
        }))
    };
    let is_zero = |name: &str| -> Result<(bool, bool)> {
        let weights = weights(&client, name)?;
        let of = |tensor: &str| {
            let found = weights.iter().find(|(name, _)| name.ends_with(tensor)).context("no such tensor")?;
            Ok::<_, anyhow::Error>(found.1.iter().all(|byte| byte & 0x7f == 0))
        };
        Ok((of("weight")?, of("bias")?))
    };
    client.must_train(&train("all", json!([])), LONG)?;
    ensure!(is_zero("all")? == (true, false), "{:?}", is_zero("all")?);
    let name = &weights(&client, "all")?.into_iter().find(|(name, _)| name.ends_with("weight")).context("no weight")?.0;
    client.must_train(&train("none", json!([name])), LONG)?;
    ensure!(is_zero("none")? == (false, false), "{:?}", is_zero("none")?);
    let refused = client.submit(&train("unknown", json!(["wieght"])))?.problem()?;
    ensure!(refused.detail.contains("`wieght`") && refused.detail.contains(&format!("`{name}`")), "{refused:?}");
    Ok(())
}

#[test]
fn admm_is_for_convex_losses_and_agrees() -> Result<()> {
    let (_node, client) = node()?;
    let refused = client.submit(&lenet(json!({ "workers": 2, "sync": { "rule": "admm" } })))?.problem()?;
    ensure!(refused.detail.contains("convex"), "{refused:?}");
    client.must_deploy("logreg", &component("functions/logistic-regression")?)?;
    let set = json!({ "synthetic": { "kind": "binary20", "train": 2_000, "test": 500, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/binary", &[], &serde_json::to_vec(&set)?)?;
    ensure!(made.status == 201, "{made:?}");
    let spec = json!({
        "function": "logreg", "dataset": "binary", "name": "agreed", "workers": 4, "epochs": 240, "batch": 500, "lr": 0.5, "validate_every": 20,
        "seed": 3, "memory": 64 << 20, "params": { "features": 20 }, "sync": { "rule": "admm", "rho": 0.1, "lambda": 0.001, "inner_epochs": 20 },
    });
    let detail = client.must_train(&spec, LONG)?;
    let residuals: Vec<f64> = detail.history.iter().filter_map(|epoch| epoch.primal_residual).collect();
    println!("{residuals:?}");
    ensure!(residuals.len() == 12, "{residuals:?}");
    ensure!(residuals[11] < residuals[0] / 3.0, "{residuals:?}");
    Ok(())
}
