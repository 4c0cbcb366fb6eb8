//! One parameter of a search file: its distribution in their words, as a domain in ours.

use super::yaml::{Content, Entry, Node};
use super::{SweepError, map, number, word};
use crate::tune::space::words::value;
use crate::tune::space::{Domain, Parameter, Value};

/// The keys that a parameter can have.
#[derive(Default)]
struct Keys<'a> {
    distribution: Option<&'a Node>,
    value: Option<&'a Node>,
    values: Option<&'a Node>,
    min: Option<&'a Node>,
    max: Option<&'a Node>,
    q: Option<&'a Node>,
    condition: Option<&'a Node>,
}

/// Distributions that have no counterpart, and what to write instead.
const WITHOUT: [(&str, &str); 8] = [
    ("normal", "`uniform` with `min` and `max`"),
    ("q_normal", "`q_uniform` with `min`, `max` and `q`"),
    ("log_normal", "`log_uniform_values` with `min` and `max`"),
    ("q_log_normal", "`log_uniform_values` with `min` and `max`"),
    ("beta", "`uniform` with `min` and `max`"),
    ("q_beta", "`q_uniform` with `min`, `max` and `q`"),
    ("inv_log_uniform", "`log_uniform_values` with `min` and `max`"),
    ("inv_log_uniform_values", "`log_uniform_values` with `min` and `max`"),
];

pub fn read(entry: &Entry) -> Result<Parameter, SweepError> {
    let name = format!("parameters.{}", entry.key);
    let parameter =
        Parameter { name: entry.key.clone(), domain: Domain::Constant(Value::Integer(0)), conditions: Vec::new() };
    let keys = keys(entry, &name)?;
    let domain = domain(entry, &keys, &name)?;
    let conditions = match keys.condition {
        Some(node) => format!(" if {}", word(node, &format!("{name}.if"))?),
        None => String::new(),
    };
    // Read again as it would be written in `--search`: what does so has the same limits, and goes the same way to the node.
    let text = format!("{}={domain}{conditions}", parameter.name);
    let read: Parameter = text.parse().map_err(|error| {
        let error: crate::tune::space::SpaceError = error;
        SweepError::new(entry.line, &name, &error.to_string())
    })?;
    if read.domain != domain {
        let why =
            format!("its values cannot be told apart when written as `{domain}`; leave out `|`, `..`, `:` and ` if `");
        return Err(SweepError::new(entry.line, &name, &why));
    }
    Ok(read)
}

fn keys<'a>(entry: &'a Entry, name: &str) -> Result<Keys<'a>, SweepError> {
    let mut keys = Keys::default();
    for part in map(&entry.node, name)? {
        let key = format!("{name}.{}", part.key);
        let place = match part.key.as_str() {
            "distribution" => &mut keys.distribution,
            "value" => &mut keys.value,
            "values" => &mut keys.values,
            "min" => &mut keys.min,
            "max" => &mut keys.max,
            "q" => &mut keys.q,
            "if" => &mut keys.condition,
            "mu" | "sigma" | "a" | "b" => {
                return Err(SweepError::new(
                    part.line,
                    &key,
                    "there is no such distribution here; give `min` and `max`",
                ));
            }
            "probabilities" => {
                return Err(SweepError::new(
                    part.line,
                    &key,
                    "all values are as likely here; leave the probabilities out",
                ));
            }
            "parameters" => {
                let why = "parameters in parameters are not known; give each a name of its own at the top";
                return Err(SweepError::new(part.line, &key, why));
            }
            _ => {
                let known = "`value`, `values`, `min`, `max`, `q`, `distribution` and `if`";
                return Err(SweepError::new(part.line, &key, &format!("there is no such key; there are {known}")));
            }
        };
        *place = Some(&part.node);
    }
    Ok(keys)
}

fn domain(entry: &Entry, keys: &Keys, name: &str) -> Result<Domain, SweepError> {
    let (kind, line) = match keys.distribution {
        Some(node) => (word(node, &format!("{name}.distribution"))?, node.line),
        None => (guessed(entry, keys, name)?, entry.line),
    };
    let needed = |node: Option<&Node>, key: &str| -> Result<f64, SweepError> {
        let missing =
            || SweepError::new(line, &format!("{name}.{key}"), &format!("it is missing, and `{kind}` needs it"));
        number(node.ok_or_else(missing)?, &format!("{name}.{key}"))
    };
    let whole = |node: Option<&Node>, key: &str| -> Result<i64, SweepError> {
        let number = needed(node, key)?;
        let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
        let at = node.map_or(line, |node| node.line);
        let why = format!("{number} is no whole number, and `{kind}` needs one");
        if is_whole { Ok(number as i64) } else { Err(SweepError::new(at, &format!("{name}.{key}"), &why)) }
    };
    let ends = || Ok((needed(keys.min, "min")?, needed(keys.max, "max")?));
    let step = || if keys.q.is_some() { needed(keys.q, "q") } else { Ok(1.0) };
    match kind {
        "constant" => Ok(Domain::Constant(one(entry, keys.value, name)?)),
        "categorical" => choice(entry, keys.values, name),
        "uniform" => ends().map(|(low, high)| Domain::Number { low, high, log: false, step: None }),
        "log_uniform_values" => ends().map(|(low, high)| Domain::Number { low, high, log: true, step: None }),
        // Their older form gives the exponents of e.
        "log_uniform" => {
            ends().map(|(low, high)| Domain::Number { low: low.exp(), high: high.exp(), log: true, step: None })
        }
        "int_uniform" => {
            let (low, high) = (whole(keys.min, "min")?, whole(keys.max, "max")?);
            Ok(Domain::Integer { low, high, log: false, step: 1 })
        }
        "q_uniform" => {
            let ((low, high), step) = (ends()?, step()?);
            let are_whole = [low, high, step].iter().all(|number| number.fract() == 0.0 && number.abs() < 9e15);
            if are_whole && step >= 1.0 {
                // The end is the last value that the steps come to.
                let (low, step) = (low as i64, step as i64);
                let high = high as i64;
                let high = if high > low { high - (high - low) % step } else { high };
                return Ok(Domain::Integer { low, high, log: false, step });
            }
            Ok(Domain::Number { low, high, log: false, step: Some(step) })
        }
        "q_log_uniform_values" => {
            if step()? != 1.0 {
                let why = "on a logarithmic scale only steps of 1 are known: leave `q` out, or use `q_uniform`";
                return Err(SweepError::new(line, &format!("{name}.q"), why));
            }
            let (low, high) = (whole(keys.min, "min")?, whole(keys.max, "max")?);
            Ok(Domain::Integer { low, high, log: true, step: 1 })
        }
        other => {
            let instead = WITHOUT.iter().find(|(known, _)| *known == other).map(|(_, instead)| *instead);
            let why = match instead {
                Some(instead) => format!("`{other}` is not known here; use {instead}"),
                None => format!(
                    "there is no distribution `{other}`; there are `constant`, `categorical`, `uniform`, `int_uniform`, \
                     `q_uniform`, `log_uniform_values`, `log_uniform` and `q_log_uniform_values`"
                ),
            };
            Err(SweepError::new(line, &format!("{name}.distribution"), &why))
        }
    }
}

/// What they take it for where no distribution is given.
fn guessed(entry: &Entry, keys: &Keys, name: &str) -> Result<&'static str, SweepError> {
    let is_whole = |node: &Node| matches!(&node.content, Content::Word(text) if text.parse::<i64>().is_ok());
    match (keys.value, keys.values, keys.min, keys.max) {
        (Some(_), None, None, None) => Ok("constant"),
        (None, Some(_), None, None) => Ok("categorical"),
        (None, None, Some(_), Some(_)) if keys.q.is_some() => Ok("q_uniform"),
        (None, None, Some(min), Some(max)) if is_whole(min) && is_whole(max) => Ok("int_uniform"),
        (None, None, Some(_), Some(_)) => Ok("uniform"),
        _ => Err(SweepError::new(entry.line, name, "give either `value`, or `values`, or `min` and `max`")),
    }
}

fn one(entry: &Entry, node: Option<&Node>, name: &str) -> Result<Value, SweepError> {
    let key = format!("{name}.value");
    let node = node.ok_or_else(|| SweepError::new(entry.line, &key, "it is missing, and `constant` needs it"))?;
    value(word(node, &key)?.trim()).map_err(|why| SweepError::new(node.line, &key, &why))
}

fn choice(entry: &Entry, node: Option<&Node>, name: &str) -> Result<Domain, SweepError> {
    let key = format!("{name}.values");
    let node = node.ok_or_else(|| SweepError::new(entry.line, &key, "it is missing, and `categorical` needs it"))?;
    let Content::List(nodes) = &node.content else {
        return Err(SweepError::new(node.line, &key, "a list is expected, as in `[32, 64, 128]`"));
    };
    let mut values: Vec<Value> = Vec::new();
    for node in nodes {
        let read = value(word(node, &key)?.trim()).map_err(|why| SweepError::new(node.line, &key, &why))?;
        if values.iter().any(|known| known.is_same(&read)) {
            return Err(SweepError::new(node.line, &key, &format!("`{read}` is in it twice")));
        }
        values.push(read);
    }
    match values.len() {
        0 => Err(SweepError::new(node.line, &key, "the list is empty")),
        1 => Ok(Domain::Constant(values.remove(0))),
        _ => Ok(Domain::Choice(values)),
    }
}
