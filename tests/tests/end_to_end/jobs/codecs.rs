//! Gradients in fewer bytes: what is learnt, what is sent, and what stays the same when workers and nodes die.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::http::Client;

use super::{LONG, lenet, node, weights};

const WORKERS: u64 = 4;

/// What a job came to: its best validation accuracy, and the bytes that workers sent, without those that they took over.
fn train(client: &Client, codec: &str) -> Result<(f64, f64)> {
    let spec = json!({ "workers": WORKERS, "rule": "gradient-average", "codec": codec, "epochs": 8, "batch": 8 });
    let job = client.must_submit(&lenet(spec))?;
    client.must_finish(&job, LONG)?;
    let history = client.get(&format!("/v1/jobs/{job}/history"))?.json()?;
    let epochs = history["epochs"].as_array().context("no epochs")?;
    // Of the best epoch: the last one's goes up and down with the bits of sums, which differ from processor to processor.
    let accuracies = epochs.iter().filter_map(|epoch| epoch["validation"]["accuracy"].as_f64());
    let accuracy = accuracies.max_by(f64::total_cmp).context("no accuracy")?;
    let bytes: f64 = epochs.iter().filter_map(|epoch| epoch["spending"]["bytes"].as_f64()).sum();
    let rounds: f64 = epochs.iter().filter_map(|epoch| epoch["steps"].as_f64()).sum();
    // A round begins with the weights, and the last validation with them once more.
    let model = weights(client, &job)?.iter().map(|(_, bytes)| bytes.len() as f64).sum::<f64>();
    Ok((accuracy, bytes - (rounds + 1.0) * WORKERS as f64 * model))
}

#[test]
fn lenet_learns_through_every_codec_and_less_is_sent() -> Result<()> {
    let (_node, client) = node()?;
    let (plain, sent) = train(&client, "plain")?;
    println!("plain: accuracy {plain:.3}, {sent} bytes");
    ensure!(plain > 0.9, "{plain}");
    for (codec, most) in
        [("f16", 0.55), ("qsgd:4", 0.15), ("qsgd:8", 0.28), ("top-k:0.05", 0.12), ("significance:0.02", 0.95)]
    {
        let (accuracy, bytes) = train(&client, codec)?;
        println!("{codec}: accuracy {accuracy:.3}, {:.3} of the bytes", bytes / sent);
        ensure!(accuracy >= plain - 0.05, "{codec}: {accuracy} beside {plain}");
        ensure!(bytes <= most * sent, "{codec}: {:.3} of the bytes", bytes / sent);
    }
    Ok(())
}

#[test]
fn what_was_not_sent_outlives_workers_and_nodes() -> Result<()> {
    let (mut node, mut client) = node()?;
    for codec in ["top-k:0.05", "qsgd:4"] {
        let way = |name: &str| {
            let way = json!({ "workers": 3, "rule": "gradient-average", "codec": codec, "epochs": 20, "name": name, "checkpoint_every": 7 });
            lenet(way)
        };
        let [calm, disturbed] =
            ["calm", "disturbed"].map(|what| format!("{what}-{}", codec.split(':').next().unwrap_or_default()));
        client.must_submit(&way(&calm))?;
        client.must_finish(&calm, LONG)?;
        client.must_submit(&way(&disturbed))?;
        client.job_until(&disturbed, LONG, |detail| detail.job.epoch >= 1)?;
        client.order(&disturbed, "workers/1/kill")?;
        client.job_until(&disturbed, LONG, |detail| detail.job.epoch >= 3)?;
        node = node.kill_and_restart()?;
        client = node.anybody();
        client.must_finish(&disturbed, LONG)?;
        ensure!(weights(&client, &calm)? == weights(&client, &disturbed)?, "{codec}");
    }
    Ok(())
}

#[test]
fn codecs_that_cannot_be_are_refused() -> Result<()> {
    let (_node, client) = node()?;
    for (wrong, reason) in [
        (json!({ "workers": 2, "codec": "zip" }), "`codec`"),
        (json!({ "workers": 2, "codec": "qsgd:9" }), "`codec`"),
        (json!({ "workers": 2, "codec": "top-k:0" }), "`codec`"),
        (json!({ "workers": 2, "sync": { "pace": "overwrite", "k": 5, "codec": "f16" } }), "`codec`"),
    ] {
        let problem = client.submit(&lenet(wrong.clone()))?.problem()?;
        ensure!(problem.detail.contains(reason), "{wrong}: {}", problem.detail);
    }
    Ok(())
}
