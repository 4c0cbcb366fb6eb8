//! Standing orders: a data set that has grown starts a job by itself.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::StandingOrderView;
use weft::job::State;
use weft_tests::command::User;
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Options, eventually};

use super::LONG;
use super::follow::{append, create, samples};

fn words(more: Value) -> Value {
    let mut spec = json!({
        "function": "logistic", "params": { "features": 20 }, "epochs": 1, "batch": 8, "memory": 32 << 20,
    });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

fn put(client: &Client, dataset: &str, spec: &Value) -> Result<weft_tests::http::Answer> {
    let headers = [("content-type", "application/json")];
    client.send("PUT", &format!("/v1/datasets/{dataset}/on-append"), &headers, &serde_json::to_vec(spec)?)
}

fn order(client: &Client, dataset: &str) -> Result<StandingOrderView> {
    Ok(serde_json::from_value(client.get(&format!("/v1/datasets/{dataset}/on-append"))?.json()?)?)
}

fn jobs(client: &Client) -> Result<Vec<String>> {
    let list = client.get("/v1/jobs")?.json()?;
    let names = list["jobs"].as_array().context("no jobs")?.iter();
    Ok(names.filter_map(|job| job["name"].as_str().map(str::to_owned)).collect())
}

#[test]
fn a_data_set_that_has_grown_starts_one_job_at_a_time_for_the_latest_version() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("logistic", &component("functions/logistic-regression")?)?;
    create(&client, "grows", &samples(200, 1))?;
    let given = put(&client, "grows", &words(json!({ "name": "nightly", "epochs": 1_000_000 })))?;
    ensure!(given.status == 201, "{given:?}");
    ensure!(jobs(&client)?.is_empty(), "nothing has grown yet");
    append(&client, "grows", &samples(50, 2))?;
    eventually(LONG, || Ok(jobs(&client)? == ["nightly-v2"]))?;
    client.job_in("nightly-v2", State::Running, LONG)?;
    // What comes while it trains becomes one job, for the latest of them.
    for seed in 3..6 {
        append(&client, "grows", &samples(50, seed))?;
    }
    ensure!(jobs(&client)? == ["nightly-v2"], "{:?}", jobs(&client)?);
    // From now on, shorter ones; the order in its new words knows nothing of the job that the old one started.
    let node = node.kill_and_restart()?;
    let client = node.anybody();
    client.order("nightly-v2", "stop")?.json()?;
    eventually(LONG, || Ok(jobs(&client)?.contains(&"nightly-v5".to_owned())))?;
    ensure!(jobs(&client)? == ["nightly-v2", "nightly-v5"], "{:?}", jobs(&client)?);
    let latest = client.get("/v1/datasets/grows")?.json()?["dataset"]["version"].clone();
    ensure!(json!(client.job("nightly-v5")?.data_version) == latest);
    eventually(LONG, || Ok(order(&client, "grows")?.started == 2))?;
    let now = order(&client, "grows")?;
    ensure!(now.job.as_deref() == Some("nightly-v5") && json!(now.seen) == latest && now.problem.is_empty(), "{now:?}");
    // Taken back, it starts nothing more.
    ensure!(client.send("DELETE", "/v1/datasets/grows/on-append", &[], b"")?.status == 204);
    client.order("nightly-v5", "stop")?.json()?;
    append(&client, "grows", &samples(50, 7))?;
    ensure!(client.get("/v1/datasets/grows/on-append")?.status == 404);
    ensure!(client.get("/v1/on-append")?.json()?["orders"] == json!([]));
    ensure!(jobs(&client)? == ["nightly-v2", "nightly-v5"], "{:?}", jobs(&client)?);
    Ok(())
}

#[test]
fn orders_that_make_no_sense_are_refused_and_what_later_fails_is_told() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    client.must_deploy("logistic", &component("functions/logistic-regression")?)?;
    create(&client, "grows", &samples(200, 1))?;
    let word = |spec: Value| -> Result<(u16, Option<String>)> {
        let answer = put(&client, "grows", &words(spec))?;
        Ok((answer.status, answer.problem()?.word))
    };
    ensure!(word(json!({ "dataset": "other" }))? == (422, Some("dataset".to_owned())));
    ensure!(word(json!({ "follow": {} }))? == (422, Some("follow".to_owned())));
    ensure!(word(json!({ "epochs": 0 }))? == (422, Some("epochs".to_owned())));
    ensure!(word(json!({ "params": { "features": 21 } }))?.0 == 422, "the trainer takes other samples");
    ensure!(word(json!({ "function": "nobody" }))?.0 == 404);
    ensure!(put(&client, "nothing", &words(json!({})))?.status == 404);
    // A job that cannot be started leaves its reason with the order, which goes on with the next version.
    ensure!(put(&client, "grows", &words(json!({ "name": "auto" })))?.status == 201);
    let quota = |limit: u64| {
        node.operator()?.send(
            "PATCH",
            "/v1/tenants/one/quota",
            &[("content-type", "application/json")],
            &serde_json::to_vec(&json!({ "workers": limit }))?,
        )
    };
    ensure!(quota(0)?.status == 200);
    append(&client, "grows", &samples(50, 2))?;
    eventually(LONG, || Ok(order(&client, "grows")?.problem.contains("workers")))?;
    ensure!(quota(8)?.status == 200);
    append(&client, "grows", &samples(50, 3))?;
    eventually(LONG, || Ok(jobs(&client)? == ["auto-v3"]))?;
    eventually(LONG, || Ok(order(&client, "grows")?.problem.is_empty()))?;
    client.must_finish("auto-v3", LONG)?;
    // An order goes with its data set.
    ensure!(client.send("DELETE", "/v1/datasets/grows", &[], b"")?.status == 204);
    eventually(LONG, || Ok(client.get("/v1/datasets/grows/on-append")?.status == 404))
}

#[test]
fn the_command_line_gives_shows_and_takes_back_orders() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("logistic", &component("functions/logistic-regression")?)?;
    create(&client, "grows", &samples(200, 1))?;
    let user = User::of(&client)?;
    let spec = user.file("job.json", serde_json::to_vec(&words(json!({})))?)?.display().to_string();
    user.must(&["dataset", "on-append", "grows", "--train", &spec])?;
    let flags = ["--function", "logistic", "--job", "flags", "--param", "features=20", "--epochs", "1", "--batch", "8"];
    let given = user.json(&[&["dataset", "on-append", "grows"], &flags[..]].concat())?;
    ensure!(given["spec"]["name"] == "flags" && given["spec"]["dataset"] == "grows", "{given}");
    ensure!(user.must(&["dataset", "on-append"])?.contains("logistic"));
    append(&client, "grows", &samples(50, 2))?;
    eventually(LONG, || Ok(user.json(&["dataset", "on-append", "grows"])?["job"] == "flags-v2"))?;
    user.must(&["dataset", "on-append", "grows", "--delete"])?;
    let gone = user.weft(&["dataset", "on-append", "grows"])?;
    ensure!(gone.code == Some(1) && gone.stderr.contains("no standing order"), "{gone:?}");
    Ok(())
}
