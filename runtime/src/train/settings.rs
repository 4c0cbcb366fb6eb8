//! Hyper-parameters: what a caller wrote becomes what a trainer takes, or an error that says what it would take.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::host::bindings::weft::train::training::{Description, HyperParameter, Setting, Value};
use crate::text;

/// Settings as all workers of a job share them.
pub type Settings = Arc<[Setting]>;

/// Characters of what a caller gave that an error repeats.
const REPEATED: usize = 100;

/// A value that is not possible.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingError {
    #[error("there is no parameter `{name}`; there {known}")]
    Unknown { name: String, known: String },
    #[error("parameter `{name}` is given twice")]
    Twice { name: String },
    #[error("parameter `{name}`: `{given}` is not {expected}")]
    Bad { name: String, given: String, expected: String },
    #[error("the trainer describes parameter `{name}` wrongly: {reason}")]
    Description { name: String, reason: &'static str },
}

/// Reads `name=value` pairs; what is not given has its default.
pub fn read(description: &Description, given: &[(String, String)]) -> Result<Settings, SettingError> {
    let known: BTreeMap<&str, &HyperParameter> =
        description.hyper_parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
    let mut seen = BTreeSet::new();
    for (name, _) in given {
        if !known.contains_key(name.as_str()) {
            let names: Vec<&str> = description.hyper_parameters.iter().map(|known| known.name.as_str()).collect();
            let known = if names.is_empty() { "are none".to_owned() } else { format!("are: {}", listed(&names)) };
            return Err(SettingError::Unknown { name: start_of(name), known });
        }
        if !seen.insert(name) {
            return Err(SettingError::Twice { name: start_of(name) });
        }
    }
    let settings = description.hyper_parameters.iter().map(|parameter| {
        let value = match given.iter().find(|(name, _)| *name == parameter.name) {
            Some((_, text)) => parse(parameter, text)?,
            None => parameter.default.clone(),
        };
        Ok(Setting { name: parameter.name.clone(), value })
    });
    settings.collect()
}

/// As much as an error repeats of what a caller gave.
fn start_of(given: &str) -> String {
    given.chars().take(REPEATED).collect()
}

/// As much as an error lists of what would do.
fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    text::cut(words.join(", "), text::MOST_ERROR / 2)
}

fn parse(parameter: &HyperParameter, text: &str) -> Result<Value, SettingError> {
    let bad = |expected: String| SettingError::Bad { name: parameter.name.clone(), given: start_of(text), expected };
    let value = match parameter.default {
        Value::Integer(_) => text.parse().map(Value::Integer).map_err(|_| bad("a whole number".to_owned()))?,
        Value::Real(_) => match text.parse::<f64>() {
            Ok(real) if real.is_finite() => Value::Real(real),
            _ => return Err(bad("a finite number".to_owned())),
        },
        Value::Boolean(_) => text.parse().map(Value::Boolean).map_err(|_| bad("`true` or `false`".to_owned()))?,
        Value::Text(_) => Value::Text(text.to_owned()),
    };
    if let Value::Text(text) = &value
        && !parameter.choices.is_empty()
        && !parameter.choices.contains(text)
    {
        return Err(bad(format!("one of: {}", listed(&parameter.choices))));
    }
    let bound = |bound: &Option<Value>| {
        let wrong = SettingError::Description { name: parameter.name.clone(), reason: "a bound is no number" };
        bound.as_ref().map(|bound| number(bound).ok_or(wrong)).transpose()
    };
    let (low, high) = (bound(&parameter.low)?, bound(&parameter.high)?);
    if let Some(found) = number(&value)
        && (low.is_some_and(|low| found < low) || high.is_some_and(|high| found > high))
    {
        return Err(bad(match (low, high) {
            (Some(low), Some(high)) => format!("between {low} and {high}"),
            (Some(low), None) => format!("at least {low}"),
            (None, Some(high)) => format!("at most {high}"),
            (None, None) => "possible".to_owned(),
        }));
    }
    Ok(value)
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(integer) => Some(*integer as f64),
        Value::Real(real) => Some(*real),
        Value::Text(_) | Value::Boolean(_) => None,
    }
}

/// Bytes of memory that settings take, about.
pub fn bytes(settings: &[Setting]) -> u64 {
    let texts = settings.iter().map(|setting| {
        let value = if let Value::Text(text) = &setting.value { text.len() } else { 0 };
        setting.name.len() + value
    });
    (size_of_val(settings) + texts.sum::<usize>()) as u64
}

/// A value as JSON.
pub fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Integer(integer) => serde_json::Value::from(*integer),
        Value::Real(real) => serde_json::Value::from(*real),
        Value::Text(text) => serde_json::Value::from(text.as_str()),
        Value::Boolean(boolean) => serde_json::Value::from(*boolean),
    }
}

/// As JSON, for a model's metadata.
pub fn to_json(settings: &[Setting]) -> BTreeMap<String, serde_json::Value> {
    settings.iter().map(|setting| (setting.name.clone(), json(&setting.value))).collect()
}

/// Settings as they are written down and read again, each with its type.
pub mod as_words {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Setting, Settings, Value};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        Integer(i64),
        Real(f64),
        Text(String),
        Boolean(bool),
    }

    pub fn serialize<S: Serializer>(settings: &[Setting], serializer: S) -> Result<S::Ok, S::Error> {
        let word = |value: &Value| match value {
            Value::Integer(integer) => Word::Integer(*integer),
            Value::Real(real) => Word::Real(*real),
            Value::Text(text) => Word::Text(text.clone()),
            Value::Boolean(boolean) => Word::Boolean(*boolean),
        };
        serializer.collect_seq(settings.iter().map(|setting| (&setting.name, word(&setting.value))))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Settings, D::Error> {
        let value = |word| match word {
            Word::Integer(integer) => Value::Integer(integer),
            Word::Real(real) => Value::Real(real),
            Word::Text(text) => Value::Text(text),
            Word::Boolean(boolean) => Value::Boolean(boolean),
        };
        let words: Vec<(String, Word)> = Deserialize::deserialize(deserializer)?;
        Ok(words.into_iter().map(|(name, word)| Setting { name, value: value(word) }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::bindings::weft::train::training::Traits;

    fn parameter(name: &str, default: Value, low: Option<Value>, high: Option<Value>) -> HyperParameter {
        HyperParameter {
            name: name.to_owned(),
            summary: String::new(),
            default,
            low,
            high,
            choices: if name == "stem" { vec!["small".to_owned(), "large".to_owned()] } else { Vec::new() },
            logarithmic: false,
        }
    }

    fn description() -> Description {
        Description {
            summary: String::new(),
            traits: Traits::empty(),
            hyper_parameters: vec![
                parameter("classes", Value::Integer(10), Some(Value::Integer(2)), None),
                parameter("dropout", Value::Real(0.5), Some(Value::Real(0.0)), Some(Value::Real(0.9))),
                parameter("stem", Value::Text("small".to_owned()), None, None),
                parameter("bias", Value::Boolean(true), None, None),
            ],
        }
    }

    fn error(name: &str, value: &str) -> String {
        read(&description(), &[(name.to_owned(), value.to_owned())]).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let settings = read(&description(), &[("dropout".to_owned(), "0.25".to_owned())]).unwrap();
        let json = to_json(&settings);
        assert_eq!(json["classes"], 10);
        assert_eq!(json["dropout"], 0.25);
        assert_eq!(json["stem"], "small");
    }

    #[test]
    fn an_error_says_what_would_do() {
        assert!(error("classess", "3").contains("there are: classes, dropout, stem, bias"));
        assert!(error("classes", "1").contains("at least 2"));
        assert!(error("classes", "1.5").contains("a whole number"));
        assert!(error("dropout", "1").contains("between 0 and 0.9"));
        assert!(error("dropout", "NaN").contains("a finite number"));
        assert!(error("stem", "huge").contains("one of: small, large"));
        assert!(error("bias", "yes").contains("`true` or `false`"));
        let twice = [("bias".to_owned(), "true".to_owned()), ("bias".to_owned(), "true".to_owned())];
        assert!(read(&description(), &twice).unwrap_err().to_string().contains("twice"));
    }
}
