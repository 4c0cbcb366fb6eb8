//! Jobs that are planned while they run: by rules, by tries, within a time and for a price.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::{JobDetail, PlanView};
use weft::job::{JobEvent, State};
use weft_core::plan::bounds::Bounds;
use weft_core::plan::elastic::Elastic;
use weft_core::plan::policy::{Action, Kept};
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

use super::{LONG, lenet, node, prepare};

const MIB: u64 = 1 << 20;

fn plan(client: &Client, job: &str) -> Result<PlanView> {
    let answer = client.get(&format!("/v1/jobs/{job}/plan"))?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(serde_json::from_value(answer.json()?)?)
}

/// A node whose tenant's ledger is about this job alone. Starts cost nothing there, so that small budgets are for training.
fn with_ledger() -> Result<(Node, Client)> {
    let node = Options::default().set("price-start", "0").start()?;
    let tenant = node.tenant("ada", json!({}))?;
    prepare(&tenant)?;
    Ok((node, tenant))
}

/// What the tenant has paid for by now.
fn paid(client: &Client) -> Result<f64> {
    Ok(client.usage()?.usage.cost())
}

/// What one epoch of a job costs.
fn cost_of_an_epoch(client: &Client, spec: &Value) -> Result<f64> {
    let detail = client.must_train(spec, LONG)?;
    Ok(detail.spending.cost / detail.history.len() as f64)
}

fn decided(decisions: &[Kept]) -> Vec<Kept> {
    decisions.iter().filter(|kept| kept.came.is_some()).cloned().collect()
}

#[test]
fn elastic_follows_its_rule_epoch_by_epoch_within_its_bounds() -> Result<()> {
    let (_node, client) = node()?;
    let spec = json!({ "name": "elastic", "workers": "1..3", "epochs": 7, "plan": { "policy": "elastic" } });
    let detail = client.must_train(&lenet(spec), LONG)?;
    let view = plan(&client, "elastic")?;
    let bounds =
        Bounds { least_workers: 1, most_workers: 3, least_memory: 64 * MIB, most_memory: 64 * MIB, memory_step: MIB };
    ensure!(view.bounds == Bounds { memory_step: view.bounds.memory_step, ..bounds }, "{view:?}");
    let mut rule = Elastic::default();
    let mut workers = vec![1];
    for kept in &decided(&view.decisions) {
        let came = kept.came.context("nothing came of it")?;
        let seconds = came.step_seconds * came.steps as f64;
        workers.push(rule.step(came.shape.workers, seconds, &bounds).workers);
    }
    let had: Vec<u32> = detail.history.iter().map(|epoch| epoch.workers).collect();
    ensure!(had == workers[..had.len()], "{had:?} and not {workers:?}: {:?}", view.decisions);
    ensure!(had[..2] == [1, 2], "after the first epoch there is one more: {had:?}");
    // Every decision was told while the job ran.
    let events = client.events("elastic")?;
    let told = events.iter().filter(|view| matches!(view.event, JobEvent::Plan(_))).count();
    ensure!(told == view.decisions.len(), "{told} of {} decisions were told", view.decisions.len());
    Ok(())
}

fn ended_for_its_budget(detail: &JobDetail) -> Result<()> {
    let reason = &detail.job.reason;
    ensure!(detail.job.state == State::Done, "{detail:?}");
    ensure!(reason.contains("budget of") && reason.contains("were spent"), "{reason}");
    ensure!(detail.checkpoint.is_some(), "{detail:?}");
    Ok(())
}

#[test]
fn a_budget_ends_a_job_with_its_model_before_it_is_exceeded() -> Result<()> {
    let (_node, client) = with_ledger()?;
    for (name, more) in [
        ("alone", json!({ "workers": 1 })),
        ("two", json!({ "workers": 2 })),
        ("rounds", json!({ "workers": 2, "k": 8 })),
        ("epochs", json!({ "workers": 2, "k": "epoch" })),
    ] {
        let spec = |own: Value| {
            let mut spec = lenet(more.clone());
            if let (Some(spec), Some(own)) = (spec.as_object_mut(), own.as_object()) {
                spec.extend(own.clone());
            }
            spec
        };
        let epoch = cost_of_an_epoch(&client, &spec(json!({ "name": format!("{name}-whole"), "epochs": 2 })))?;
        // Below one epoch, and between some.
        for (which, part) in [("below", 0.4), ("some", 2.5)] {
            let (budget, name) = (part * epoch, format!("{name}-{which}"));
            let before = paid(&client)?;
            let own = json!({ "name": name, "epochs": 1_000, "plan": { "budget": budget } });
            let detail = client.must_train(&spec(own), LONG)?;
            ended_for_its_budget(&detail)?;
            let used = paid(&client)? - before;
            ensure!(used <= budget, "{name}: {used} of {budget}");
            let spent = plan(&client, &name)?.spent.cost;
            ensure!(spent <= budget, "{name}: {spent} of {budget}");
            ensure!(detail.models == [name.clone()], "{name}: {:?}", detail.models);
            client.model_file(&name)?;
        }
    }
    Ok(())
}

#[test]
fn a_budget_for_next_to_nothing_keeps_what_there_is_or_is_refused() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("ada", json!({}))?;
    prepare(&client)?;
    let spec = |budget: f64| lenet(json!({ "name": "poor", "epochs": 10, "plan": { "budget": budget } }));
    let refused = client.submit(&spec(1e-12))?.problem()?.detail;
    ensure!(refused.contains("start of its workers"), "{refused}");
    let before = paid(&client)?;
    let detail = client.must_train(&spec(3e-6), LONG)?;
    ended_for_its_budget(&detail)?;
    ensure!(detail.job.epoch < 10, "{detail:?}");
    let used = paid(&client)? - before;
    ensure!(used <= 3e-6, "{used}");
    client.model_file("poor")?;
    Ok(())
}

#[test]
fn the_fastest_within_a_budget_never_costs_more() -> Result<()> {
    let (_node, client) = with_ledger()?;
    let epoch = cost_of_an_epoch(&client, &lenet(json!({ "name": "whole", "global_batch": 16 })))?;
    for (name, part) in [("tight", 1.5), ("wide", 60.0)] {
        let (budget, before) = (part * epoch, paid(&client)?);
        let spec = json!({
            "name": name, "epochs": 12, "workers": "1..3", "global_batch": 16,
            "plan": { "policy": format!("fastest-within:{budget}"), "least_memory": 64 * MIB, "most_memory": 128 * MIB },
        });
        let detail = client.must_train(&lenet(spec), LONG)?;
        let used = paid(&client)? - before;
        ensure!(used <= budget, "{name}: {used} of {budget}");
        match name {
            "tight" => ended_for_its_budget(&detail)?,
            _ => ensure!(detail.job.epoch == 12, "{detail:?}"),
        }
        let view = plan(&client, name)?;
        ensure!(view.spent.probes > 0 && view.spent.cost <= budget, "{:?}", view.spent);
    }
    Ok(())
}

#[test]
fn a_deadline_is_kept_where_one_worker_of_the_least_size_would_miss_it() -> Result<()> {
    let node = Options::default().dev().set("cores-per-gib", "0.5").start()?;
    let client = node.anybody();
    prepare(&client)?;
    let spec = |more: Value| {
        let mut spec = lenet(json!({ "global_batch": 16, "validate_every": 0 }));
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        spec
    };
    let slow = client.must_train(&spec(json!({ "name": "slow", "epochs": 5 })), LONG)?;
    // The first ones have a reserve of core time.
    let seconds = slow.history.last().context("no epoch")?.seconds;
    let (epochs, deadline) = (10, 10.0 * seconds * 0.6);
    let own = json!({
        "name": "kept", "epochs": epochs, "workers": "1..2",
        "plan": {
            "policy": "cheapest", "deadline_ms": (deadline * 1e3) as u64,
            "least_memory": 64 * MIB, "most_memory": 512 * MIB,
        },
    });
    let detail = client.must_train(&spec(own), LONG)?;
    let view = plan(&client, "kept")?;
    ensure!(detail.job.epoch == epochs, "{detail:?}");
    ensure!(view.spent.seconds <= deadline, "{} s of {deadline}: {:?}", view.spent.seconds, view.decisions);
    ensure!(view.limits.seconds.is_some() && view.recommendation.is_some(), "{view:?}");
    ensure!(view.decisions.iter().any(|kept| matches!(kept.decision.action, Action::Reshape(_))));
    Ok(())
}

#[test]
fn what_is_scaled_by_hand_stays() -> Result<()> {
    let (_node, client) = node()?;
    let spec = json!({ "name": "mine", "workers": "1..4", "epochs": 100_000, "plan": { "policy": "elastic" } });
    client.must_submit(&lenet(spec))?;
    client.job_until("mine", LONG, |detail| detail.job.epoch >= 1)?;
    let answer = client.post("/v1/jobs/mine/scale", &json!({ "workers": 2 }))?;
    ensure!(answer.status == 200, "{answer:?}");
    let scaled = client.job_until("mine", LONG, |detail| detail.changes.is_empty())?.job.epoch;
    let detail = client.job_until("mine", LONG, |detail| detail.job.epoch >= scaled + 6)?;
    let later: Vec<u32> =
        detail.history.iter().filter(|epoch| epoch.epoch > scaled + 1).map(|epoch| epoch.workers).collect();
    ensure!(later.iter().all(|workers| *workers == 2), "{later:?}");
    client.order("mine", "stop")?.json()?;
    client.job_in("mine", State::Stopped, LONG)?;
    // It stays after it was resumed, too.
    ensure!(client.order("mine", "resume")?.status == 200);
    let before = detail.job.epoch;
    let detail = client.job_until("mine", LONG, |detail| detail.job.epoch > before + 2)?;
    ensure!(detail.history.last().is_some_and(|epoch| epoch.workers == 2), "{detail:?}");
    Ok(())
}

#[test]
fn a_killed_node_goes_on_with_the_decisions_that_were_made() -> Result<()> {
    let (node, client) = with_ledger()?;
    let before = paid(&client)?;
    let budget = 0.01;
    let spec = json!({
        "name": "planned", "epochs": 40, "workers": "1..3", "global_batch": 16,
        "plan": { "policy": "fastest", "budget": budget, "least_memory": 64 * MIB, "most_memory": 128 * MIB },
    });
    client.must_submit(&lenet(spec))?;
    client.job_until("planned", LONG, |detail| detail.job.epoch >= 2)?;
    let seen = plan(&client, "planned")?.decisions;
    ensure!(seen.len() > 2, "{seen:?}");
    let node = node.kill_and_restart()?;
    let client = Client::new(node.url(), client.key());
    let again = plan(&client, "planned")?.decisions;
    ensure!(again.len() >= seen.len(), "{} decisions of {}", again.len(), seen.len());
    client.must_finish("planned", LONG)?;
    let view = plan(&client, "planned")?;
    for (before, after) in seen.iter().zip(&view.decisions) {
        ensure!(before.decision == after.decision, "{before:?} and then {after:?}");
        ensure!(before.came.is_none() || before.came == after.came, "{before:?} and then {after:?}");
    }
    // Work that was lost was paid, too.
    let used = paid(&client)? - before;
    ensure!(used <= view.spent.cost * 1.001 && view.spent.cost <= budget, "{used}, {:?}", view.spent);
    Ok(())
}

#[test]
fn a_budget_holds_although_the_node_is_killed_again_and_again() -> Result<()> {
    let (mut node, mut client) = with_ledger()?;
    let epoch = cost_of_an_epoch(&client, &lenet(json!({ "name": "whole" })))?;
    let (budget, before) = (8.0 * epoch, paid(&client)?);
    client.must_submit(&lenet(json!({ "name": "killed", "epochs": 1_000, "plan": { "budget": budget } })))?;
    for epochs in [1, 3] {
        client.job_until("killed", LONG, |detail| detail.job.epoch >= epochs || detail.job.state.is_over())?;
        node = node.kill_and_restart()?;
        client = Client::new(node.url(), client.key());
    }
    let detail = client.must_finish("killed", LONG)?;
    ended_for_its_budget(&detail)?;
    let used = paid(&client)? - before;
    ensure!(used <= budget, "{used} of {budget}");
    Ok(())
}

#[test]
fn a_job_that_is_only_planned_leaves_points_and_no_model() -> Result<()> {
    let (_node, client) = node()?;
    let spec = json!({
        "name": "asked", "epochs": 200, "workers": "1..3", "global_batch": 16, "keep": 2,
        "plan": { "policy": "cheapest", "only": true, "least_memory": 64 * MIB, "most_memory": 256 * MIB },
    });
    let detail = client.must_train(&lenet(spec), LONG)?;
    ensure!(detail.job.reason.contains("no model was kept"), "{}", detail.job.reason);
    ensure!(detail.models.is_empty() && client.get("/v1/models/asked")?.status == 404);
    let view = plan(&client, "asked")?;
    ensure!(view.is_settled && view.only && view.spent.probes >= 4, "{view:?}");
    ensure!(!view.points.is_empty() && view.points.iter().any(|point| point.is_measured), "{:?}", view.points);
    for point in &view.points {
        let (time, cost) = (point.seconds, point.cost);
        ensure!(time.least <= time.expected && time.expected <= time.most && cost.least <= cost.most, "{point:?}");
    }
    let choice = view.recommendation.context("nothing is recommended")?;
    ensure!(view.points.get(choice.point).is_some() && !choice.why.is_empty());
    // Tries took a small part of the job.
    let steps = detail.checkpoint.map_or(0, |checkpoint| checkpoint.step);
    ensure!(steps < 200 * 90 / 10, "{steps} steps");
    Ok(())
}

#[test]
fn a_schedule_of_batches_has_the_job_planned_anew() -> Result<()> {
    let (_node, client) = node()?;
    let spec = json!({
        "name": "schedule", "epochs": 30, "workers": "1..2", "batch_schedule": { "15": 48 },
        "plan": { "policy": "fastest", "least_memory": 64 * MIB, "most_memory": 128 * MIB },
    });
    client.must_train(&lenet(spec), LONG)?;
    let decisions = plan(&client, "schedule")?.decisions;
    let anew = decisions.iter().position(|kept| kept.decision.why.contains("have changed: look again"));
    let anew = anew.with_context(|| format!("it was not planned anew: {decisions:?}"))?;
    ensure!(decisions[..anew].iter().any(|kept| kept.decision.is_probe), "nothing was tried before");
    Ok(())
}

#[test]
fn what_cannot_be_planned_is_refused_with_what_is_wrong() -> Result<()> {
    let (_node, client) = node()?;
    for (wrong, words) in [
        (json!({ "plan": {} }), "says nothing"),
        (json!({ "plan": { "policy": "quick" } }), "is no policy"),
        (json!({ "workers": 4, "plan": { "policy": "elastic" } }), "range of `workers`"),
        (json!({ "plan": { "budget": -1 } }), "above 0"),
        (
            json!({ "plan": { "policy": "elastic", "deadline_ms": 5 }, "workers": "1..4" }),
            "does not look at a deadline",
        ),
        (json!({ "plan": { "policy": "best", "only": true }, "workers": "1..4" }), "tries nothing out"),
        (
            json!({ "plan": { "policy": "best" }, "workers": "1..4", "pace": "on-arrival" }),
            "do not wait for each other",
        ),
        (
            json!({ "plan": { "policy": "cheapest" }, "workers": "1..4", "k": "epoch" }),
            "only meet when an epoch is over",
        ),
        (json!({ "plan": { "policy": "cheapest", "most_memory": 1_u64 << 42 } }), "no device"),
    ] {
        let answer = client.submit(&lenet(wrong.clone()))?;
        ensure!((400..500).contains(&answer.status), "{wrong}: {answer:?}");
        let detail = answer.problem()?.detail;
        ensure!(detail.contains(words), "{wrong}: {detail}");
    }
    ensure!(client.submit(&lenet(json!({ "plan": { "policies": "best" } })))?.status == 400);
    client.must_train(&lenet(json!({ "name": "plain", "epochs": 1 })), LONG)?;
    let none = client.get("/v1/jobs/plain/plan")?;
    ensure!(none.status == 404 && none.text().contains("without `plan`"), "{none:?}");
    Ok(())
}

#[test]
fn a_stopped_job_that_is_planned_goes_on_with_its_budget() -> Result<()> {
    let (_node, client) = with_ledger()?;
    let epoch = cost_of_an_epoch(&client, &lenet(json!({ "name": "whole" })))?;
    let (budget, before) = (6.0 * epoch, paid(&client)?);
    client.must_submit(&lenet(json!({ "name": "stops", "epochs": 1_000, "plan": { "budget": budget } })))?;
    client.job_until("stops", LONG, |detail| detail.job.epoch >= 1)?;
    client.order("stops", "stop")?.json()?;
    client.job_until("stops", Duration::from_secs(30), |detail| detail.job.state == State::Stopped)?;
    ensure!(client.order("stops", "resume")?.status == 200);
    ended_for_its_budget(&client.must_finish("stops", LONG)?)?;
    let used = paid(&client)? - before;
    ensure!(used <= budget, "{used} of {budget}");
    Ok(())
}
