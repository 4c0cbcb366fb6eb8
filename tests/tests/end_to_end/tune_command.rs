//! `weft tune` as a user and as a program meet it, from a search to what other programs read of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use weft_core::tune::chance::{Chance, Purpose};
use weft_core::tune::export;
use weft_core::tune::space::Space;
use weft_core::tune::study::{Direction, Report, State};
use weft_core::tune::table::{Row, Table};
use weft_tests::command::User;
use weft_tests::components::component;
use weft_tests::node::{Node, Options, eventually};
use weft_tests::python;

const LONG: Duration = Duration::from_secs(120);

/// What every study here is of.
const MLP: [&str; 9] = [
    "tune",
    "mlp",
    "--dataset=digits",
    "--param=features=64",
    "--param=classes=10",
    "--param=width=32",
    "--memory=64MiB",
    "--epochs=3",
    "--seed=1",
];

const SWEEP: &str = "\
program: train.py
method: random
metric: {name: accuracy, goal: maximize}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-3, max: 1e-1}
  batch: {values: [32, 64]}
  layers: {min: 1, max: 2}
run_cap: 6
";

/// A development node with a perceptron and digits, and a user of it.
fn developer() -> Result<(Node, User)> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    client.must_deploy("mlp", &component("functions/mlp")?)?;
    let made = client.send("PUT", "/v1/datasets/digits", &[], &serde_json::to_vec(&json!({ "shipped": "digits" }))?)?;
    ensure!(made.status == 201, "{made:?}");
    let user = User::of(&client)?;
    Ok((node, user))
}

#[test]
fn a_study_goes_from_a_search_file_to_what_other_programs_read() -> Result<()> {
    let (_node, user) = developer()?;
    user.file("sweep.yaml", SWEEP)?;
    let line = [&MLP[..], &["--name=first", "--search-file=sweep.yaml", "--enqueue=lr=0.05,layers=1"]].concat();
    let ended = user.weft(&line)?;
    ensure!(ended.code == Some(0), "{ended:?}");
    // Without a terminal, progress is lines on stderr, and what it came to is on stdout.
    for words in
        ["left out `program`", "study `first` runs", "trial 0 runs: batch=", "lr=0.05", "best so far: accuracy"]
    {
        ensure!(ended.stderr.contains(words), "`{words}` is not in {ended:?}");
    }
    ensure!(!ended.stderr.contains('\x1b') && ended.stdout.contains("6 of 6: 6 done"), "{ended:?}");
    let listed = user.json(&["tunes", "--state", "done"])?;
    ensure!(listed["tunes"][0]["name"] == "first" && listed["tunes"].as_array().map(Vec::len) == Some(1), "{listed}");
    let shown = user.json(&["tune", "show", "first"])?;
    ensure!(shown["search"] == json!(["lr=log:0.001..0.1", "batch=32|64", "layers=int:1..2"]), "{shown}");
    ensure!(shown["tune"]["sampler"] == "random" && shown["curve"].as_array().map(Vec::len) == Some(6), "{shown}");
    let best = user.json(&["tune", "best", "first"])?;
    ensure!(best["value"].as_f64().is_some_and(|value| value > 0.8), "{best}");
    let again = user.must(&["tune", "best", "first"])?;
    ensure!(again.contains("weft train mlp --dataset digits --batch ") && again.contains("--param layers="), "{again}");
    let trials = user.json(&["tune", "trials", "first", "--sort", "value"])?;
    ensure!(trials["trials"][0]["trial"] == best["trial"], "{trials}");
    ensure!(user.must(&["tune", "trials", "first", "--limit", "2"])?.lines().count() == 3);
    exported(&user, best["value"].as_f64().context("no value")?)?;
    for kind in ["curve", "parallel", "importance"] {
        let file = format!("{kind}.svg");
        user.must(&["tune", "plot", "first", "--kind", kind, "--output", &file])?;
        let svg = std::fs::read_to_string(user.home().join(&file))?;
        ensure!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        ensure!(svg == user.must(&["tune", "plot", "first", "--kind", kind])?, "the same study gives the same picture");
    }
    user.must(&["tune", "delete", "first", "--yes"])?;
    ensure!(user.weft(&["tune", "show", "first"])?.code == Some(1));
    Ok(())
}

/// Each form holds all trials of the study `first`, as its own readers see them.
fn exported(user: &User, best: f64) -> Result<()> {
    let json: Value = serde_json::from_str(&user.must(&["tune", "export", "first", "--format", "json"])?)?;
    ensure!(json["trials"].as_array().map(Vec::len) == Some(6) && json["goal"] == "accuracy", "{json}");
    for (format, output) in [("csv", "first.csv"), ("optuna", "first.log"), ("tensorboard", "board")] {
        let told = user.json(&["tune", "export", "first", "--format", format, "--output", output])?;
        ensure!(told["trials"] == 6 && told["path"] == output, "{told}");
    }
    let script = format!(
        r#"
import csv, optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
rows = list(csv.DictReader(open('first.csv', newline='')))
assert len(rows) == 6 and {{row['param.batch'] for row in rows}} <= {{'32', '64'}}, rows
study = optuna.load_study(study_name='first', storage=JournalStorage(JournalFileBackend('first.log')))
assert len(study.trials) == 6 and study.best_value == {best:?}, study.trials
assert study.metric_names == ['accuracy'] and study.direction.name == 'MAXIMIZE'
assert study.trials[0].params['lr'] == 0.05 and len(study.trials[0].intermediate_values) == 3, study.trials[0]
board = EventMultiplexer().AddRunsFromDirectory('board')
board.Reload()
assert len(board.Runs()) == 7, board.Runs()
assert [event.step for event in board.Scalars('trial-0000', 'accuracy')] == [1, 2, 3]
"#
    );
    python::run(&script, user.home()).map(drop)
}

#[test]
fn optuna_and_tensorboard_read_every_kind_of_parameter_and_of_trial() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let table = varied()?;
    std::fs::write(folder.path().join("journal.log"), export::optuna::journal(&table))?;
    for (name, bytes) in export::tensorboard::files(&table) {
        let path = folder.path().join("board").join(name);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(path, bytes)?;
    }
    std::fs::write(folder.path().join("expected.json"), export::json(&table).to_string())?;
    let script = r#"
import json, optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import metadata
expected = json.load(open('expected.json'))
storage = lambda: JournalStorage(JournalFileBackend('journal.log'))
study = optuna.load_study(study_name=expected['study'], storage=storage())
states = {'done': 'COMPLETE', 'pruned': 'PRUNED', 'paused': 'PRUNED', 'stopped': 'PRUNED', 'failed': 'FAIL',
          'running': 'RUNNING', 'waiting': 'WAITING'}
assert len(study.trials) == len(expected['trials'])
for trial, row in zip(study.trials, expected['trials']):
    assert trial.number == row['trial'] and trial.state.name == states[row['state']], (trial, row)
    assert set(trial.params) == set(row['params']) == set(trial.distributions), (trial, row)
    for name, value in row['params'].items():
        assert trial.params[name] == value, (name, trial.params[name], value)
        assert trial.distributions[name]._contains(trial.distributions[name].to_internal_repr(value)), (name, value)
    assert trial.intermediate_values == {report['epoch']: report['value'] for report in row['reports']}
    if trial.state.is_finished():
        assert trial.value == row['value'] and trial.datetime_complete > trial.datetime_start, (trial, row)
assert study.trials[0].distributions['lr'] == optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True)
assert study.trials[0].distributions['drop'] == optuna.distributions.FloatDistribution(0.0, 0.5, step=0.1)
assert study.trials[0].distributions['layers'] == optuna.distributions.IntDistribution(1, 4)
assert study.trials[0].distributions['optimizer'] == optuna.distributions.CategoricalDistribution(('sgd', 'adam', 'a "b" & <c>'))
# It can be gone on with there: what waits here is asked first, with the values that it has.
asked = study.ask()
waiting = next(row for row in expected['trials'] if row['state'] == 'waiting')
assert asked.number == waiting['trial'], asked
assert asked.suggest_float('lr', 1e-4, 1e-1, log=True) == waiting['params']['lr']
study.tell(asked, 0.5)
assert optuna.load_study(study_name=expected['study'], storage=storage()).trials[asked.number].value == 0.5
board = EventMultiplexer().AddRunsFromDirectory('board')
board.Reload()
about = board.SummaryMetadata('.', metadata.EXPERIMENT_TAG).plugin_data.content
experiment = metadata.parse_experiment_plugin_data(about)
assert [info.name for info in experiment.hparam_infos] == ['lr', 'drop', 'layers', 'width', 'batch', 'optimizer', 'fixed', 'units3']
statuses = {'done': 1, 'pruned': 1, 'paused': 0, 'stopped': 0, 'failed': 2, 'running': 3, 'waiting': 0}
for row in expected['trials']:
    run = f"trial-{row['trial']:04}"
    start = metadata.parse_session_start_info_plugin_data(
        board.SummaryMetadata(run, metadata.SESSION_START_INFO_TAG).plugin_data.content)
    values = {name: value.string_value or value.number_value for name, value in start.hparams.items()}
    assert values == row['params'], (values, row)
    end = metadata.parse_session_end_info_plugin_data(
        board.SummaryMetadata(run, metadata.SESSION_END_INFO_TAG).plugin_data.content)
    assert end.status == statuses[row['state']], (end, row)
    if row['reports']:
        found = [event.step for event in board.Scalars(run, expected['goal'])]
        assert found == [report['epoch'] for report in row['reports']], (found, row)
"#;
    python::run(script, folder.path()).map(drop)
}

/// Trials in all states, of a space with every kind of parameter.
fn varied() -> Result<Table> {
    let space = Space::parse(&[
        "lr=log:1e-4..1e-1",
        "drop=0..0.5:0.1",
        "layers=int:1..4",
        "width=int:log:16..512",
        "batch=32|64|128",
        "optimizer=sgd|adam|a \"b\" & <c>",
        "fixed=7",
        "units3=int:16..128:16 if layers>=3",
    ])?;
    let states = [
        State::Done,
        State::Pruned,
        State::Paused,
        State::Stopped,
        State::Failed("out of \"memory\"".to_owned()),
        State::Running,
        State::Waiting,
    ];
    let row = |number: u32| {
        let state = states[number as usize % states.len()].clone();
        let epochs = if state == State::Waiting { 0 } else { number % 4 + 1 };
        let value = |epoch: u32| 0.25 + f64::from(epoch) / 8.0 + f64::from(number) / 1024.0;
        let started = 1_790_000_000_000 + 500 * u64::from(number);
        Row {
            number,
            point: space.draw(&mut Chance::new(3, Purpose::Point, number.into())),
            reports: (1..=epochs).map(|epoch| Report { epoch, value: value(epoch) }).collect(),
            workers: 1,
            cost: 0.001,
            seconds: 1.0,
            job: Some(format!("s-{number:04}")),
            started: Some(started),
            ended: Some(started + 1_000),
            state,
        }
    };
    let rows = (0..28).map(row).collect();
    let (name, goal) = ("everything".to_owned(), "f1".to_owned());
    Ok(Table { name, goal, direction: Direction::Maximise, space, seed: 1, rows })
}

#[test]
fn a_search_of_architectures_leaves_out_what_does_not_count() -> Result<()> {
    let (_node, user) = developer()?;
    let search = [
        "--name=shapes",
        "--search=layers=int:1..3",
        "--search=units1=int:8..64:8",
        "--search=units3=int:8..32:8 if layers>=3",
        "--sampler=evolution",
        "--trials=12",
        "--quiet",
    ];
    user.must(&[&MLP[..], &search].concat())?;
    let trials = user.json(&["tune", "trials", "shapes"])?;
    let trials = trials["trials"].as_array().context("no trials")?;
    let with = |trial: &&Value| trial["point"]["units3"].is_number();
    ensure!(trials.len() == 12 && trials.iter().all(|trial| trial["state"] == "done"), "{trials:?}");
    for trial in trials {
        let deep = trial["point"]["layers"].as_i64() == Some(3);
        ensure!(deep == with(&trial), "{trial}");
    }
    ensure!(trials.iter().any(|trial| with(&trial)) && !trials.iter().all(|trial| with(&trial)), "{trials:?}");
    Ok(())
}

#[test]
fn ctrl_c_leaves_a_study_running_and_says_how_to_come_back() -> Result<()> {
    let (_node, user) = developer()?;
    let search = ["--name=long", "--search=lr=log:1e-3..1e-1", "--trials=500", "--epochs=200", "--sampler=random"];
    let line = [&MLP[..7], &["--seed=1"], &search].concat();
    let child = user.start(&line)?;
    eventually(LONG, || {
        Ok(user.weft(&["tune", "trials", "long", "--json"])?.stdout.contains("\"state\":\"running\""))
    })?;
    kill_process(Pid::from_child(&child.0), Signal::INT)?;
    let ended = wait(child)?;
    ensure!(ended.0 == Some(130) && ended.1.contains("`weft tune watch long`"), "{ended:?}");
    ensure!(user.json(&["tune", "show", "long"])?["tune"]["state"] == "running");
    let stopped = user.must(&["tune", "stop", "long"])?;
    ensure!(stopped.contains("stop"), "{stopped}");
    // Whoever follows a study to the end that somebody gave it hears that it did not come to its own.
    let watched = user.weft(&["tune", "watch", "long"])?;
    ensure!(watched.code == Some(1) && watched.stdout.contains("stopped"), "{watched:?}");
    user.must(&["tune", "resume", "long"])?;
    ensure!(user.json(&["tune", "show", "long"])?["tune"]["state"] == "running");
    let refused = user.weft(&["tune", "delete", "long", "--yes"])?;
    ensure!(refused.code == Some(1), "a study that runs is not deleted: {refused:?}");
    user.must(&["tune", "stop", "long"])?;
    eventually(LONG, || Ok(user.weft(&["tune", "delete", "long", "--yes"])?.code == Some(0)))?;
    ensure!(user.json(&["tunes"])?["tunes"] == json!([]));
    Ok(())
}

/// The exit code of a command, and what it said on stderr.
fn wait(mut child: weft_tests::command::Running) -> Result<(Option<i32>, String)> {
    let mut said = String::new();
    if let Some(mut stderr) = child.0.stderr.take() {
        std::io::Read::read_to_string(&mut stderr, &mut said)?;
    }
    Ok((child.0.wait()?.code(), said))
}

#[test]
fn what_cannot_be_searched_is_refused_with_what_is_wrong() -> Result<()> {
    let (_node, user) = developer()?;
    user.file("bad.yaml", "method: random\nparameters:\n  lr:\n    min: 2\n    max: 1\n")?;
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--search=lr=1..0"], 2, "wrong way round"),
        (&["--search=lr=0.1..0.5", "--sampler=best"], 2, "`cma-es`"),
        (&["--search-file=bad.yaml"], 1, "line 3: `parameters.lr`"),
        (&["--search-file=absent.yaml"], 1, "cannot read `absent.yaml`"),
        (&["--search=lr=0.1..0.5", "--goal=f1"], 1, "maximise"),
        (&["--search=lr=0.1..0.5", "--enqueue=rate=1"], 1, "`rate`"),
        (&["--search=lr=0.1..0.5", "--workers=4", "--max-workers=2"], 1, "all together"),
        (&["--search=nonsense=1|2"], 1, "nonsense"),
    ];
    for (more, code, words) in cases {
        let ended = user.weft(&[&MLP[..], more].concat())?;
        ensure!(ended.code == Some(code) && ended.stderr.contains(words), "{more:?}: {ended:?}");
    }
    ensure!(user.weft(&["tune"])?.code == Some(2));
    let absent = user.weft(&["tune", "show", "absent"])?;
    ensure!(absent.code == Some(1) && absent.stderr.contains("`weft tunes`"), "{absent:?}");
    ensure!(user.json(&["tunes"])?["tunes"] == json!([]), "what is refused leaves nothing");
    Ok(())
}
