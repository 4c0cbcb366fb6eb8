//! ADMM beside scikit-learn, which is given the same samples: the same optimum, after fewer rounds than k-average needs.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use weft_tests::components::component;
use weft_tests::http::Client;
use weft_tests::node::Options;
use weft_tests::python;

use super::super::data::upload;
use super::{LONG, weights};

const ROWS: usize = 400;
const COLUMNS: usize = 8;
/// How strongly weights are penalised; biases never are.
const LAMBDA: f64 = 0.01;
/// How far above the least value of the objective a model may be.
const WITHIN: f64 = 1e-3;
const WORKERS: u32 = 4;
/// The same for both rules, and one at which k-average is fast: with a third of it, it takes three times as long.
const RATE: f64 = 0.3;
const BATCH: u32 = 25;
const RHO: f64 = 0.03;
const INNER_EPOCHS: u64 = 20;
/// Epochs, and so rounds, that k-average has.
const MOST_ROUNDS: u64 = 150;

struct Sample {
    features: [f64; COLUMNS],
    /// -1 or 1.
    sign: f64,
}

/// Columns of different scales, so that steps of one size do not suit all of them, and labels that no line tells apart.
fn samples() -> Vec<Sample> {
    const SCALES: [f64; COLUMNS] = [1.5, 1.2, 0.9, 0.75, 0.6, 0.45, 0.375, 0.3];
    const TEACHER: [f64; COLUMNS] = [1.0, -2.0, 1.5, 0.0, -1.0, 3.0, 0.0, 2.0];
    let sample = |row: usize| {
        let features: [f64; COLUMNS] = std::array::from_fn(|column| {
            let at = (row * COLUMNS + column) as f64;
            let value = (at * at * 0.37 + at * 0.11 + 1.0).sin() * SCALES[column];
            f64::from(value as f32)
        });
        let noise = (row as f64 * row as f64 * 0.77).sin();
        let score: f64 = features.iter().zip(TEACHER).map(|(value, weight)| value * weight).sum();
        Sample { features, sign: if score + 0.3 + noise > 0.0 { 1.0 } else { -1.0 } }
    };
    (0..ROWS).map(sample).collect()
}

fn table(samples: &[Sample]) -> String {
    let row = |sample: &Sample| {
        let values: Vec<String> = sample.features.iter().map(|value| (*value as f32).to_string()).collect();
        format!("{},{}\n", values.join(","), u8::from(sample.sign > 0.0))
    };
    samples.iter().map(row).collect()
}

/// Weights, and the bias.
#[derive(Deserialize)]
struct Linear {
    weights: Vec<f64>,
    bias: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Logistic,
    Hinge,
}

impl Loss {
    fn function(self) -> &'static str {
        match self {
            Self::Logistic => "logistic-regression",
            Self::Hinge => "svm",
        }
    }

    fn of(self, margin: f64) -> f64 {
        match self {
            Self::Logistic if margin < -30.0 => -margin,
            Self::Logistic => (-margin).exp().ln_1p(),
            Self::Hinge => (1.0 - margin).max(0.0),
        }
    }
}

/// The mean loss and the penalty, in double precision.
fn objective(samples: &[Sample], loss: Loss, penalty: &str, model: &Linear) -> f64 {
    let dot = |sample: &Sample| -> f64 { sample.features.iter().zip(&model.weights).map(|(x, w)| x * w).sum() };
    let losses: f64 = samples.iter().map(|sample| loss.of(sample.sign * (dot(sample) + model.bias))).sum();
    let norm: f64 = match penalty {
        "l1" => model.weights.iter().map(|weight| weight.abs()).sum(),
        _ => model.weights.iter().map(|weight| weight * weight).sum::<f64>() / 2.0,
    };
    losses / samples.len() as f64 + LAMBDA * norm
}

/// The exact optima. scikit-learn has no exact solver for the hinge loss with an L1 penalty, only its SGD: there it is a
/// linear program, which the same environment's SciPy solves, and scikit-learn's SGD must come close to it.
const SCRIPT: &str = "
import json, numpy as np
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import SVC
table = np.loadtxt('train.csv', delimiter=',')
x, y = table[:, :-1], table[:, -1].astype(int)
rows, columns = x.shape
sign, C = 2 * y - 1, 1 / (LAMBDA * rows)
def linear(it): return dict(weights=list(it.coef_[0]), bias=float(it.intercept_[0]))
found = {}
for penalty, solver in [('l1', 'saga'), ('l2', 'lbfgs')]:
    it = LogisticRegression(penalty=penalty, C=C, solver=solver, tol=1e-10, max_iter=1000000).fit(x, y)
    found['logistic-regression ' + penalty] = linear(it)
found['svm l2'] = linear(SVC(kernel='linear', C=C, tol=1e-9).fit(x, y))
# Weights as differences of what is not negative, the bias too, and how far each sample is inside its margin.
cost = np.concatenate([np.full(2 * columns, LAMBDA), [0, 0], np.full(rows, 1 / rows)])
margins = np.hstack([sign[:, None] * x, -sign[:, None] * x, sign[:, None], -sign[:, None], np.eye(rows)])
solved = linprog(cost, A_ub=-margins, b_ub=-np.ones(rows), bounds=(0, None)).x
found['svm l1'] = dict(weights=list(solved[:columns] - solved[columns:2 * columns]),
                       bias=float(solved[2 * columns] - solved[2 * columns + 1]))
it = SGDClassifier(loss='hinge', penalty='l1', alpha=LAMBDA, max_iter=3000, tol=None, random_state=0).fit(x, y)
found['svm l1 sgd'] = linear(it)
print(json.dumps(found))
";

fn optima(folder: &Path, table: &str) -> Result<Value> {
    std::fs::write(folder.join("train.csv"), table)?;
    let script = SCRIPT.replace("LAMBDA", &LAMBDA.to_string());
    Ok(serde_json::from_str(&python::run(&script, folder)?)?)
}

/// The numbers of a model of one linear layer.
fn linear(client: &Client, model: &str) -> Result<Linear> {
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        bytes.as_chunks::<4>().0.iter().map(|word| f64::from(f32::from_le_bytes(*word))).collect()
    };
    let tensors = weights(client, model)?;
    let find = |wanted: &str| tensors.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| numbers(bytes));
    let bias = find("bias").context("no bias")?;
    Ok(Linear { weights: find("weight").context("no weight")?, bias: *bias.first().context("an empty bias")? })
}

/// A job that keeps the model of every epoch.
fn job(loss: Loss, name: &str, epochs: u64, decay: f64, sync: Value) -> Value {
    json!({
        "function": loss.function(), "dataset": "rows", "name": name, "workers": WORKERS, "batch": BATCH, "lr": RATE,
        "epochs": epochs, "keep": epochs, "seed": 5, "memory": 16 << 20, "sync": sync,
        "params": { "features": COLUMNS, "momentum": 0, "weight-decay": decay },
    })
}

#[test]
fn admm_reaches_the_optimum_of_scikit_learn_in_a_third_of_the_rounds_of_k_average() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let samples = samples();
    let table = table(&samples);
    let optima = optima(folder.path(), &table)?;
    let optimum = |loss: Loss, penalty: &str, more: &str| -> Result<f64> {
        let found = &optima[format!("{} {penalty}{more}", loss.function())];
        Ok(objective(&samples, loss, penalty, &Linear::deserialize(found)?))
    };
    let sgd = optimum(Loss::Hinge, "l1", " sgd")? - optimum(Loss::Hinge, "l1", "")?;
    ensure!((-1e-6..1e-4).contains(&sgd), "scikit-learn's SGD is {sgd} from the optimum of the linear program");

    let node = Options::default().start()?;
    let client = node.tenant("one", json!({ "models": 10_000 }))?;
    let file = upload(&client, table.as_bytes())?;
    let set = json!({ "train": [{ "features": { "upload": file, "name": "rows.csv" } }], "label_kind": "class" });
    let made = client.send("PUT", "/v1/datasets/rows", &[], &serde_json::to_vec(&set)?)?;
    ensure!(made.status == 201, "{made:?}");
    for loss in [Loss::Logistic, Loss::Hinge] {
        let function = loss.function();
        client.must_deploy(function, &component(&format!("functions/{function}"))?)?;
        // After which round the model is as good as it must be, and by how much it misses the optimum then.
        let reached = |name: &str, penalty: &str, rounds: u64, epochs_each: u64| -> Result<Option<(u64, f64)>> {
            let least = optimum(loss, penalty, "")?;
            for round in 1..=rounds {
                let model = linear(&client, &format!("{name}-e{}", round * epochs_each))?;
                let above = objective(&samples, loss, penalty, &model) - least;
                ensure!(above > -1e-6, "{name}: {above} below scikit-learn's optimum, which is none then");
                if above < WITHIN {
                    return Ok(Some((round, above)));
                }
            }
            Ok(None)
        };
        // It has no penalty of its own; weight decay is the L2 one. There is none for L1, which is no easier.
        let name = format!("{function}-average");
        client.must_train(&job(loss, &name, MOST_ROUNDS, LAMBDA, json!({ "k": "epoch" })), LONG)?;
        let (average, _) = reached(&name, "l2", MOST_ROUNDS, 1)?.context("k-average does not reach the optimum")?;
        for penalty in ["l1", "l2"] {
            let (name, rounds) = (format!("{function}-{penalty}"), average / 3);
            let sync = json!({
                "rule": "admm", "rho": RHO, "lambda": LAMBDA, "penalty": penalty, "inner_epochs": INNER_EPOCHS,
            });
            client.must_train(&job(loss, &name, rounds * INNER_EPOCHS, 0.0, sync), LONG)?;
            let found = reached(&name, penalty, rounds, INNER_EPOCHS)?;
            let at_the_end = objective(&samples, loss, penalty, &linear(&client, &name)?) - optimum(loss, penalty, "")?;
            println!("{name}: {found:?}, at the end {at_the_end:.1e}; k-average {average} rounds");
            ensure!(found.is_some(), "{name} is {at_the_end} above the optimum after {rounds} rounds");
            ensure!(at_the_end < WITHIN, "{name} has left the optimum again: {at_the_end}");
        }
    }
    Ok(())
}
