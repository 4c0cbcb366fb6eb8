//! `weft train-local`: a job without a node, whose model and checkpoint are files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_tests::command::{Ended, User};
use weft_tests::components::component;

/// A small model of the digits that are shipped.
const MLP: [&str; 12] = [
    "--dataset",
    "digits",
    "--device",
    "cpu",
    "--param",
    "features=64",
    "--param",
    "classes=10",
    "--param",
    "layers=1",
    "--transform",
    "minmax:0,1",
];

/// Somebody with a trainer, and what trains it.
struct Trainee {
    user: User,
    function: String,
}

impl Trainee {
    fn new() -> Result<Self> {
        let user = User::new()?;
        let function = user.file("mlp.wasm", &*component("functions/mlp")?)?.display().to_string();
        Ok(Self { user, function })
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["train-local", self.function.as_str()], &MLP[..], more].concat()
    }

    fn run(&self, more: &[&str]) -> Result<Ended> {
        self.user.weft(&self.arguments(more))
    }

    fn train(&self, more: &[&str]) -> Result<Value> {
        let trained = self.user.json(&self.arguments(more))?;
        ensure!(trained["job"]["state"] == "done", "{trained}");
        Ok(trained)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.user.home().join(name)
    }

    fn refuses(&self, more: &[&str], words: &[&str]) -> Result<()> {
        let refused = self.run(more)?;
        ensure!(refused.code.is_some_and(|code| code == 1 || code == 2), "{more:?}: {refused:?}");
        for word in words {
            ensure!(refused.stderr.contains(word), "{more:?}: no `{word}` in {refused:?}");
        }
        ensure!(!refused.stderr.contains("epoch 1/"), "{more:?}: it was trained: {refused:?}");
        Ok(())
    }
}

/// The bits of a model, without what its file says of when it was made.
fn tensors(path: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let file = File::open(path).with_context(|| format!("no model `{}`", path.display()))?;
    let mut model = weft::model::Model::open(file)?;
    let names: Vec<String> = model.tensors().map(|tensor| tensor.name.clone()).collect();
    names.into_iter().map(|name| Ok((name.clone(), model.tensor(&name)?))).collect()
}

fn losses(trained: &Value) -> Result<Vec<f64>> {
    let epochs = trained["history"].as_array().context("no history")?;
    epochs.iter().map(|epoch| epoch["train_loss"].as_f64().context("no loss")).collect()
}

#[test]
fn an_interrupted_training_keeps_what_was_done_and_goes_on_to_the_same_bits() -> Result<()> {
    let trainee = Trainee::new()?;
    let whole = trainee.train(&["--epochs", "400", "-o", "whole.safetensors"])?;
    ensure!(!trainee.file("whole.checkpoint").exists(), "a training that is done needs no checkpoint");

    let arguments = trainee.arguments(&["--epochs", "400", "-o", "cut.safetensors"]);
    let mut running = trainee.user.start(&arguments)?;
    let errors = running.0.stderr.take().context("no stderr")?;
    let mut lines = BufReader::new(errors).lines();
    // Well within: each epoch is a line.
    lines
        .by_ref()
        .find(|line| line.as_ref().is_ok_and(|line| line.starts_with("epoch 20/")))
        .context("no epochs")??;
    kill_process(Pid::from_child(&running.0), Signal::INT)?;
    let said: Vec<String> = lines.collect::<Result<_, _>>()?;
    let code = running.0.wait()?.code();
    ensure!(code == Some(130), "{code:?}: {said:?}");
    let last = said.last().context("nothing was said")?;
    ensure!(last.contains("interrupted") && last.contains("cut.safetensors") && last.contains("--resume"), "{last}");
    ensure!(trainee.file("cut.safetensors").exists() && trainee.file("cut.checkpoint").exists());

    // The same command goes on; what is not said is as it was.
    let rest = trainee.train(&["-o", "cut.safetensors", "--resume"])?;
    let (all, rest) = (losses(&whole)?, losses(&rest)?);
    ensure!(rest.len() < 400 && all.ends_with(&rest), "{} of {} epochs, or other losses", rest.len(), all.len());
    ensure!(tensors(&trainee.file("cut.safetensors"))? == tensors(&trainee.file("whole.safetensors"))?);
    ensure!(!trainee.file("cut.checkpoint").exists(), "it is done now");
    Ok(())
}

#[test]
fn a_training_that_is_done_goes_on_with_more_epochs_from_its_checkpoint() -> Result<()> {
    let trainee = Trainee::new()?;
    trainee.train(&["--epochs", "4", "-o", "whole.safetensors", "--seed", "3", "--lr", "0.05"])?;
    let first = ["--epochs", "2", "-o", "part.safetensors", "--seed", "3", "--lr", "0.05", "--checkpoint-every", "5"];
    trainee.train(&first)?;
    trainee.refuses(&["-o", "part.safetensors", "--resume"], &["all 2 epochs", "--epochs"])?;
    trainee.refuses(&["-o", "part.safetensors", "--resume", "--epochs", "4", "--batch", "8"], &["`--batch` was 64"])?;
    trainee.refuses(
        &["-o", "part.safetensors", "--resume", "--epochs", "4", "--param", "width=5"],
        &["hyper-parameters"],
    )?;
    trainee.refuses(&["-o", "other.safetensors", "--resume"], &["no checkpoint", "other.checkpoint"])?;
    let rest = trainee.train(&["-o", "part.safetensors", "--resume", "--epochs", "4"])?;
    ensure!(losses(&rest)?.len() == 2 && rest["starts"] == 2, "{rest}");
    ensure!(tensors(&trainee.file("part.safetensors"))? == tensors(&trainee.file("whole.safetensors"))?);
    Ok(())
}

#[test]
fn goals_end_it_and_the_best_model_is_kept() -> Result<()> {
    let trainee = Trainee::new()?;
    let trained = trainee.train(&["--epochs", "500", "--lr", "0.05", "--goal-accuracy", "0.9", "--keep", "best"])?;
    ensure!(trained["job"]["reason"].as_str().is_some_and(|reason| reason.contains("reached the goal")), "{trained}");
    ensure!(trained["job"]["accuracy"].as_f64().is_some_and(|accuracy| accuracy >= 0.9), "{trained}");
    let trained = trainee.train(&["--epochs", "3", "--keep", "2", "-o", "kept.safetensors"])?;
    ensure!(trained["epochs"].as_array().is_some_and(|epochs| epochs.len() == 3), "{trained}");
    let there =
        ["kept-e1", "kept-e2", "kept-e3", "kept"].map(|name| trainee.file(&format!("{name}.safetensors")).exists());
    ensure!(there == [false, true, true, true], "{there:?}");
    let ended = trainee.run(&["--epochs", "100000", "--max-time", "2s", "-o", "timed.safetensors"])?;
    ensure!(ended.code == Some(0) && ended.stdout.contains("`max_time` is over"), "{ended:?}");
    ensure!(trainee.file("timed.checkpoint").exists(), "it can go on");
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_trained() -> Result<()> {
    let trainee = Trainee::new()?;
    trainee.refuses(&["-o", "/nope/x.safetensors"], &["there is no folder `/nope`"])?;
    trainee.refuses(&["-o", "."], &["is a folder"])?;
    trainee.refuses(&["--lr", "nan"], &["--lr", "finite number"])?;
    trainee.refuses(&["--goal-loss", "nan"], &["--goal-loss", "finite number"])?;
    trainee.refuses(&["--epochs", "0"], &["`--epochs`", "0 is not between 1 and"])?;
    trainee.refuses(&["--batch", "5000"], &["`--batch`", "5000 is more than the 1438 samples"])?;
    trainee.refuses(&["--channel", "store"], &["`--channel`", "without a node"])?;
    trainee.refuses(&["--param", "hiden=3"], &["there is no parameter `hiden`", "layers"])?;
    ensure!(!trainee.file("mlp.safetensors").exists());
    Ok(())
}

#[test]
fn several_workers_train_without_a_node() -> Result<()> {
    let trainee = Trainee::new()?;
    let ended =
        trainee.run(&["--epochs", "30", "--lr", "0.05", "--workers", "2", "--k", "4", "--goal-accuracy", "0.8"])?;
    ensure!(ended.code == Some(0), "{ended:?}");
    for word in ["reached the goal", "workers          2, 0 lost", "mlp.safetensors"] {
        ensure!(ended.stdout.contains(word), "no `{word}` in {ended:?}");
    }
    ensure!(ended.stderr.contains("2 workers ready"), "{ended:?}");
    Ok(())
}

#[test]
fn a_trainer_that_fails_says_why_and_leaves_an_older_model_alone() -> Result<()> {
    let trainee = Trainee::new()?;
    trainee.user.file("mlp.safetensors", "an older model")?;
    let failed = trainee.run(&["--lr", "1e30", "--epochs", "3"])?;
    ensure!(failed.code == Some(1) && failed.stdout.contains("failed"), "{failed:?}");
    ensure!(failed.stdout.contains("lower the learning rate"), "{failed:?}");
    ensure!(failed.stderr.matches("lost:").count() == 1, "the same is said once: {failed:?}");
    ensure!(std::fs::read(trainee.file("mlp.safetensors"))? == b"an older model");
    Ok(())
}
