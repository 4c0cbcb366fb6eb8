//! Studies that a loop outside drives: it asks for trials, does them itself, and tells what they came to.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::study::{TrialState, TuneState};
use weft_tests::node::Options;

fn spec(name: &str) -> serde_json::Value {
    json!({
        "name": name, "search": ["x=0..1"], "sampler": "tpe", "prune": "asha:2", "goal": "loss", "epochs": 4,
        "trials": 6, "parallel": 0, "seed": 5,
    })
}

#[test]
fn a_loop_outside_asks_and_tells_until_there_is_a_best() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let name = client.must_tune(&spec("outside"))?;
    let mut asked = 0;
    while let Some(mut trial) = client.ask(&name)?.trial {
        asked += 1;
        ensure!(asked < 50 && trial.job.is_none(), "{trial:?}");
        let x = trial.point["x"].number().context("no number")?;
        while trial.state == TrialState::Running && trial.epoch < trial.until {
            let epoch = trial.epoch + 1;
            let value = (x - 0.3).powi(2) + 1.0 / f64::from(epoch);
            trial = client
                .tell(&name, &json!({ "trial": trial.trial, "epoch": epoch, "value": value, "cost": 1.0 }))?
                .trial;
        }
        let outcome = if trial.state == TrialState::Pausing { "paused" } else { "finished" };
        client.tell(&name, &json!({ "trial": trial.trial, "outcome": outcome }))?;
    }
    let detail = client.tune(&name)?;
    ensure!(detail.tune.state == TuneState::Done && detail.tune.counts.done >= 1, "{detail:?}");
    let trials = client.trials(&name)?;
    let best = detail.tune.best.context("no best")?;
    let epochs: usize = trials.iter().map(|trial| trial.reports.len()).sum();
    ensure!(trials.len() == 6 && best.job.is_none() && detail.tune.spent == epochs as f64, "{trials:?}");
    ensure!(client.ask(&name)?.trial.is_none() && client.jobs(true)?.is_empty());
    Ok(())
}

#[test]
fn what_is_told_is_kept_and_what_cannot_be_is_refused() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let name = client.must_tune(&spec("kept"))?;
    let trial = client.ask(&name)?.trial.context("no trial")?;
    client.tell(&name, &json!({ "trial": trial.trial, "epoch": 1, "value": 0.5 }))?;
    let again =
        client.post(&format!("/v1/tunes/{name}/tell"), &json!({ "trial": trial.trial, "epoch": 1, "value": 0.4 }))?;
    ensure!(again.status == 409 && again.text().contains("after epoch 1"), "{again:?}");
    let unknown = client.post(&format!("/v1/tunes/{name}/tell"), &json!({ "trial": 77, "outcome": "finished" }))?;
    ensure!(unknown.status == 404, "{unknown:?}");
    let node = node.kill_and_restart()?;
    let client = node.anybody();
    let trials = client.trials(&name)?;
    ensure!(trials.len() == 1 && trials[0].value == Some(0.5) && trials[0].point == trial.point, "{trials:?}");
    client.tell(&name, &json!({ "trial": 0, "outcome": "paused" }))?;
    let next = client.ask(&name)?.trial.context("no trial")?;
    ensure!(next.trial == 1, "{next:?}");
    // What is no number makes the trial fail, and says so.
    let told = client.tell(&name, &json!({ "trial": 1, "epoch": 1, "value": null }))?;
    ensure!(told.trial.state == TrialState::Failed && told.trial.reason.contains("NaN"), "{told:?}");
    let stopped = client.order_tune(&name, "stop")?;
    ensure!(stopped.status == 200, "{stopped:?}");
    ensure!(client.order_tune(&name, "ask")?.status == 409);
    Ok(())
}

#[test]
fn a_study_that_starts_its_trials_is_not_asked() -> Result<()> {
    let (_node, client) = super::node()?;
    let name = client.must_tune(&super::study("own", json!({ "trials": 1, "prune": "none" })))?;
    let refused = client.order_tune(&name, "ask")?;
    ensure!(refused.status == 409 && refused.text().contains("`parallel` 0"), "{refused:?}");
    Ok(())
}
