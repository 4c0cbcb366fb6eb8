//! `weft pipeline`: what is done is not done again, what has changed is, and what was interrupted goes on.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weft::job::State;
use weft_tests::command::{Ended, User};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

use super::LONG;

/// Rows of two classes that a line tells apart.
fn table(rows: u32, shift: u32) -> String {
    let row = |row: u32| {
        let (a, b) = ((row * 7 + shift) % 13, (row * 5 + shift) % 11);
        format!("{a},{b},{}\n", u32::from(a > b))
    };
    std::iter::once("a,b,class\n".to_owned()).chain((0..rows).map(row)).collect()
}

fn pipeline(epochs: u32, at_least: f64) -> String {
    format!(
        r#"
name = "lines"

[steps.save]
kind = "push"
needs = ["check"]
model = "${{fit.model}}"
to = "out/lines-${{fit.job}}.safetensors"

[steps.data]
kind = "preprocess"
train = ["train.csv"]
split = 0.8
transform = "standardise"

[steps.fit]
kind = "train"
function = "logistic"
dataset = "${{data.dataset}}"
params = {{ features = 2, classes = 3 }}
epochs = {epochs}
batch = 8
lr = 0.1
memory = {memory}

[steps.check]
kind = "evaluate"
job = "${{fit.job}}"
train = ["test.csv"]
at_least = {{ accuracy = {at_least} }}
"#,
        memory = 32 << 20
    )
}

struct Place {
    node: Node,
    user: User,
}

impl Place {
    fn new() -> Result<Self> {
        let node = Options::default().dev().start()?;
        node.anybody().must_deploy("logistic", &component("functions/logistic-regression")?)?;
        let user = User::of(&node.anybody())?;
        user.file("train.csv", table(400, 0))?;
        user.file("test.csv", table(100, 3))?;
        user.file("lines.toml", pipeline(8, 0.7))?;
        Ok(Self { node, user })
    }

    fn client(&self) -> Client {
        self.node.anybody()
    }

    fn run(&self) -> Result<Value> {
        self.user.json(&["pipeline", "lines.toml"])
    }

    fn jobs(&self) -> Result<Vec<String>> {
        let list = self.client().get("/v1/jobs")?.json()?;
        let names = list["jobs"].as_array().context("no jobs")?.iter();
        Ok(names.filter_map(|job| job["name"].as_str().map(str::to_owned)).collect())
    }
}

/// Which steps were done, in their order, and which were done before.
fn done(report: &Value) -> Result<Vec<(String, bool)>> {
    let steps = report["steps"].as_array().context("no steps")?.iter();
    let step = |step: &Value| Some((step["name"].as_str()?.to_owned(), !step["cached"].as_bool()?));
    steps.map(|it| step(it).with_context(|| format!("{it}"))).collect()
}

fn steps(names: [(&str, bool); 4]) -> Vec<(String, bool)> {
    names.map(|(name, done)| (name.to_owned(), done)).to_vec()
}

fn refused(ended: &Ended, words: &[&str]) -> Result<()> {
    ensure!(ended.code == Some(1), "{ended:?}");
    for word in words {
        ensure!(ended.stderr.contains(word), "`{word}` is not in {ended:?}");
    }
    Ok(())
}

#[test]
fn what_is_done_is_not_done_again_and_what_has_changed_is() -> Result<()> {
    let place = Place::new()?;
    let first = place.run()?;
    ensure!(done(&first)? == steps([("data", true), ("fit", true), ("check", true), ("save", true)]), "{first:#}");
    let output = |report: &Value, step: usize, name: &str| report["steps"][step]["outputs"][name].clone();
    ensure!(output(&first, 2, "accuracy").as_f64().is_some_and(|accuracy| accuracy >= 0.7), "{first:#}");
    ensure!(output(&first, 2, "samples") == 100, "{first:#}");
    let file = place.user.home().join(output(&first, 3, "file").as_str().context("no file")?);
    let model = place.client().model_file(output(&first, 1, "model").as_str().context("no model")?)?;
    ensure!(std::fs::read(&file)? == model, "the file is not the model");

    // Nothing has changed.
    let again = place.user.weft(&["pipeline", "lines.toml"])?;
    ensure!(again.code == Some(0) && again.stderr.contains("nothing has changed: all 4 steps"), "{again:?}");
    ensure!(!again.stdout.contains("done") && place.jobs()?.len() == 1, "{again:?}");

    // A file that is gone is written again, and nothing else is done.
    std::fs::remove_file(&file)?;
    let report = place.run()?;
    ensure!(done(&report)? == steps([("data", false), ("fit", false), ("check", false), ("save", true)]), "{report:#}");

    // A word of one step: that step, and what depends on it.
    place.user.file("lines.toml", pipeline(9, 0.7))?;
    let report = place.run()?;
    ensure!(done(&report)? == steps([("data", false), ("fit", true), ("check", true), ("save", true)]), "{report:#}");
    // Only what the evaluation reads.
    place.user.file("test.csv", table(90, 3))?;
    let report = place.run()?;
    ensure!(done(&report)? == steps([("data", false), ("fit", false), ("check", true), ("save", false)]), "{report:#}");
    // And what everything depends on.
    place.user.file("train.csv", table(500, 0))?;
    let report = place.run()?;
    ensure!(done(&report)? == steps([("data", true), ("fit", true), ("check", true), ("save", true)]), "{report:#}");
    // Asked for again, although nothing has changed: the same bits, so nothing after it changes.
    let report = place.user.json(&["pipeline", "lines.toml", "--again", "data"])?;
    ensure!(done(&report)? == steps([("data", true), ("fit", false), ("check", false), ("save", false)]), "{report:#}");

    // A model that is not good enough ends it, and says which step that was.
    place.user.file("lines.toml", pipeline(9, 1.01))?;
    refused(&place.user.weft(&["pipeline", "lines.toml"])?, &["step `check`", "line 2", "must be at least 1.01"])
}

#[test]
fn a_pipeline_goes_on_where_it_was_when_it_or_its_node_is_killed() -> Result<()> {
    const EPOCHS: u32 = 1_500;
    let mut place = Place::new()?;
    place.user.file("lines.toml", pipeline(EPOCHS, 0.7))?;
    let trains = |place: &Place| -> Result<()> {
        eventually(LONG, || {
            let jobs = place.jobs()?;
            Ok(match jobs.first() {
                Some(job) => {
                    let job = place.client().job(job)?.job;
                    job.state == State::Running && job.epoch > 0
                }
                None => false,
            })
        })
    };
    // The command is killed while the job trains; the job goes on, and the next run finds it.
    let mut running = place.user.start(&["pipeline", "lines.toml"])?;
    trains(&place)?;
    let twice = place.user.weft(&["pipeline", "lines.toml"])?;
    refused(&twice, &["is running already"])?;
    running.0.kill()?;
    running.0.wait()?;
    // So it does when somebody has stopped the job meanwhile.
    let job = place.jobs()?[0].clone();
    place.client().order(&job, "stop")?.json()?;
    place.client().job_until(&job, LONG, |detail| detail.job.state == State::Stopped)?;
    let mut running = place.user.start(&["pipeline", "lines.toml"])?;
    trains(&place)?;
    // The node is killed, too: the command waits for it, or is started again.
    running.0.kill()?;
    running.0.wait()?;
    place.node = place.node.kill_and_restart()?;
    let user = place.user;
    place.user = user.with("WEFT_URL", place.node.url());
    let report = place.run()?;
    ensure!(done(&report)? == steps([("data", false), ("fit", true), ("check", true), ("save", true)]), "{report:#}");
    ensure!(place.jobs()? == [job.clone()], "{:?}", place.jobs()?);
    ensure!(place.client().job(&job)?.job.epoch == u64::from(EPOCHS));
    let report = place.run()?;
    ensure!(done(&report)?.iter().all(|(_, done)| !done), "{report:#}");
    Ok(())
}

#[test]
fn what_is_wrong_with_a_pipeline_is_told_with_its_step_and_line() -> Result<()> {
    let place = Place::new()?;
    let refuse = |text: &str, words: &[&str]| -> Result<()> {
        place.user.file("bad.toml", text)?;
        refused(&place.user.weft(&["pipeline", "bad.toml"])?, words)
    };
    refuse("[steps.a]\nkind = \"push\"\nneeds = [\"b\"]", &["line 1", "step `a`", "no such step"])?;
    let circle = "[steps.a]\nkind = \"push\"\nneeds = [\"b\"]\n[steps.b]\nkind = \"push\"\nneeds = [\"a\"]";
    refuse(circle, &["steps need each other", "`a` needs `b` needs `a`"])?;
    refuse("[steps.a]\nkind = \"train\"\nfunction = \"logistic\"\nepoch = 3", &["step `a`", "unknown field `epoch`"])?;
    refuse("[steps.a]\nkind = \"train\"\nfunction = \"nobody\"", &["step `a`", "nobody"])?;
    refuse("[steps.a]\nkind = \"preprocess\"\ntrain = [\"no.csv\"]", &["step `a`", "no.csv"])?;
    let job = "[steps.a]\nkind = \"train\"\nfunction = \"logistic\"\nfollow = {}";
    refuse(job, &["step `a`", "`follow`"])?;
    ensure!(place.jobs()?.is_empty());
    let order = place.user.json(&["pipeline", "lines.toml", "--check"])?;
    ensure!(order == serde_json::json!(["data", "fit", "check", "save"]), "{order}");
    Ok(())
}

#[test]
fn a_study_finds_the_words_that_a_later_step_trains_with() -> Result<()> {
    let place = Place::new()?;
    let text = format!(
        r#"
[steps.data]
kind = "preprocess"
train = ["train.csv"]
split = 0.8
transform = "standardise"

[steps.search]
kind = "tune"
job = {{ function = "logistic", dataset = "${{data.dataset}}", epochs = 2, batch = 8, memory = {memory}, params = {{ features = 2, classes = 3 }} }}
search = ["lr=0.0001|0.1"]
sampler = "grid"
trials = 2

[steps.fit]
kind = "train"
like = "${{search.words}}"
epochs = 4
"#,
        memory = 32 << 20
    );
    place.user.file("search.toml", text)?;
    let report = place.user.json(&["pipeline", "search.toml"])?;
    let outputs = |step: usize| &report["steps"][step]["outputs"];
    ensure!(outputs(1)["point"]["lr"] == 0.1, "{report:#}");
    let fit = outputs(2)["job"].as_str().context("no job")?;
    let spec = place.client().job(fit)?.spec;
    ensure!((spec.lr, spec.epochs, spec.batch) == (0.1, 4, 8), "{spec:?}");
    let report = place.user.json(&["pipeline", "search.toml"])?;
    ensure!(done(&report)?.iter().all(|(_, done)| !done), "{report:#}");
    Ok(())
}
