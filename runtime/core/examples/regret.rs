//! How good the samplers are, on functions and tables whose best value is known: prints a line of JSON for each problem and
//! seed with the best value after each trial. `regret SAMPLER [TABLES.json]`, where a table has a suite, a name, the sizes
//! of its parameters, whether they are ordered, and a value for each combination. `regret evaluate` gives values of the
//! functions for lines of `[name, seed, coordinates]`, for other tuners to be measured on the same.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use serde::Deserialize;
use serde_json::json;
use weft_core::tune::sampler::{Observation, Sampler, SamplerKind, Seen};
use weft_core::tune::space::{Point, Space};

#[path = "../../../tests/src/bbob.rs"]
mod bbob;

use bbob::{Bbob, NAMES, REACH};

const TRIALS: u64 = 60;
const SEEDS: u64 = 20;
const DIMENSIONS: usize = 5;

#[derive(Deserialize)]
struct Table {
    suite: String,
    name: String,
    sizes: Vec<usize>,
    ordered: bool,
    values: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(word) = arguments.first() else { return Err("give a sampler, or `evaluate`".into()) };
    if word == "evaluate" {
        return evaluate();
    }
    let kind: SamplerKind = word.parse()?;
    for name in NAMES {
        let texts: Vec<String> = (0..DIMENSIONS).map(|i| format!("x{i}=-{REACH}..{REACH}")).collect();
        let space = Space::parse(&texts)?;
        for seed in 0..SEEDS {
            let Some(function) = Bbob::new(name, DIMENSIONS, seed) else { continue };
            let value = |point: &Point| {
                let x: Vec<f64> = (0..DIMENSIONS).filter_map(|i| point.get(&format!("x{i}"))?.number()).collect();
                function.value(&x)
            };
            minimise("BBOB", name, kind, &space, seed, value)?;
        }
    }
    let Some(path) = arguments.get(1) else { return Ok(()) };
    let tables: Vec<Table> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    for table in tables {
        let choice = |size: usize| (0..size).map(|i| format!("c{i}")).collect::<Vec<_>>().join("|");
        let ordered = |(i, size): (usize, &usize)| format!("p{i}=int:0..{}", size - 1);
        let choices = |(i, size): (usize, &usize)| format!("p{i}={}", choice(*size));
        let as_integers: Vec<String> = table.sizes.iter().enumerate().map(ordered).collect();
        let as_choices: Vec<String> = table.sizes.iter().enumerate().map(choices).collect();
        let forms =
            if table.ordered { vec![("-int", as_integers), ("-cat", as_choices)] } else { vec![("", as_choices)] };
        for (form, texts) in forms {
            let space = Space::parse(&texts)?;
            for seed in 0..SEEDS {
                let value = |point: &Point| {
                    let index = table.sizes.iter().enumerate().fold(0, |index, (i, size)| {
                        let text = point[&format!("p{i}")].to_string();
                        index * size + text.trim_start_matches('c').parse::<usize>().unwrap_or(0)
                    });
                    table.values[index]
                };
                minimise(&format!("{}{form}", table.suite), &table.name, kind, &space, seed, value)?;
            }
        }
    }
    Ok(())
}

/// Runs a study of one trial at a time and prints its curve.
fn minimise(
    suite: &str,
    name: &str,
    kind: SamplerKind,
    space: &Space,
    seed: u64,
    value: impl Fn(&Point) -> f64,
) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let mut sampler = Sampler::new(kind, space.clone(), seed);
    let (mut done, mut best, mut curve) = (Vec::new(), f64::INFINITY, Vec::new());
    for number in 0..TRIALS {
        let Some(point) = sampler.propose(number, Seen { done: &done, pending: &[] }) else { break };
        let value = value(&point);
        best = value.min(best);
        curve.push(best);
        done.push(Observation { point, value: Some(value) });
    }
    let seconds = started.elapsed().as_secs_f64();
    let line = json!({"suite": suite, "name": name, "seed": seed, "best": curve, "seconds": seconds});
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

fn evaluate() -> Result<(), Box<dyn Error>> {
    let mut known: Option<(String, u64, Bbob)> = None;
    for line in std::io::stdin().lock().lines() {
        let (name, seed, x): (String, u64, Vec<f64>) = serde_json::from_str(&line?)?;
        if known.as_ref().is_none_or(|known| known.0 != name || known.1 != seed) {
            let function = Bbob::new(&name, x.len(), seed).ok_or("there is no such function")?;
            known = Some((name, seed, function));
        }
        if let Some((_, _, function)) = &known {
            writeln!(std::io::stdout(), "{:?}", function.value(&x))?;
        }
    }
    Ok(())
}
