//! References from a step's words to what another step came to: `${STEP.OUTPUT}`, and `${STEP.OUTPUT.WORD}` for a part of
//! a table. Pure.
//!
//! A text that is nothing but a reference becomes the value as it is, also a number or a table; within a longer text it
//! becomes text.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What steps came to, by step and output.
pub type Outputs = BTreeMap<String, Map<String, Value>>;

/// What another step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub step: String,
    pub output: String,
}

/// Text that looks like a reference and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadReference(pub String);

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Reference(Reference),
}

fn pieces(mut text: &str) -> Result<Vec<Piece<'_>>, BadReference> {
    let mut pieces = Vec::new();
    while let Some(start) = text.find("${") {
        if start > 0 {
            pieces.push(Piece::Text(&text[..start]));
        }
        let rest = &text[start..];
        let end = rest.find('}').ok_or_else(|| BadReference(rest.to_owned()))?;
        let (step, output) = rest[2..end].split_once('.').ok_or_else(|| BadReference(rest[..=end].to_owned()))?;
        pieces.push(Piece::Reference(Reference { step: step.trim().to_owned(), output: output.trim().to_owned() }));
        text = &rest[end + 1..];
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// Every reference in a value.
pub fn all(value: &Value) -> Result<Vec<Reference>, BadReference> {
    Ok(match value {
        Value::String(text) => {
            let reference = |piece| match piece {
                Piece::Reference(reference) => Some(reference),
                Piece::Text(_) => None,
            };
            pieces(text)?.into_iter().filter_map(reference).collect()
        }
        Value::Array(values) => values.iter().map(all).collect::<Result<Vec<_>, _>>()?.concat(),
        Value::Object(values) => values.values().map(all).collect::<Result<Vec<_>, _>>()?.concat(),
        _ => Vec::new(),
    })
}

/// A value with what its references stand for. What a step has not told is an error that names it.
pub fn resolved(value: &Value, outputs: &Outputs) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => {
            let found = |Reference { step, output }: &Reference| {
                let mut path = output.split('.');
                let first = path.next().and_then(|first| outputs.get(step)?.get(first));
                let value = path.fold(first, |value, word| value?.get(word));
                value.cloned().ok_or_else(|| format!("step `{step}` has come to no `{output}`"))
            };
            let pieces = pieces(text).map_err(|BadReference(text)| format!("`{text}` is no reference"))?;
            if let [Piece::Reference(reference)] = &pieces[..] {
                return found(reference);
            }
            let mut whole = String::new();
            for piece in &pieces {
                match piece {
                    Piece::Text(text) => whole += text,
                    Piece::Reference(reference) => match found(reference)? {
                        Value::String(text) => whole += &text,
                        other => whole += &other.to_string(),
                    },
                }
            }
            Value::String(whole)
        }
        Value::Array(values) => values.iter().map(|value| resolved(value, outputs)).collect::<Result<_, _>>()?,
        Value::Object(values) => {
            let pair = |(key, value): (&String, &Value)| Ok((key.clone(), resolved(value, outputs)?));
            Value::Object(values.iter().map(pair).collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outputs() -> Outputs {
        let Value::Object(search) = json!({"params": {"lr": 0.1}, "value": 0.5, "job": "best"}) else { panic!() };
        BTreeMap::from([("search".to_owned(), search)])
    }

    #[test]
    fn a_reference_alone_is_the_value_and_within_a_text_its_text() {
        let words = json!({"a": "${search.params}", "b": ["out/${search.job}-${search.value}.npz", "plain", 3]});
        let expected = json!({"a": {"lr": 0.1}, "b": ["out/best-0.5.npz", "plain", 3]});
        assert_eq!(resolved(&words, &outputs()), Ok(expected));
        assert_eq!(all(&words).unwrap().len(), 3);
        assert_eq!(resolved(&json!("${search.params.lr}"), &outputs()), Ok(json!(0.1)));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = resolved(&json!("${search.model}"), &outputs()).unwrap_err();
        assert_eq!(error, "step `search` has come to no `model`");
        let error = resolved(&json!("${search.params.momentum}"), &outputs()).unwrap_err();
        assert_eq!(error, "step `search` has come to no `params.momentum`");
        assert_eq!(all(&json!("${search}")), Err(BadReference("${search}".to_owned())));
        assert_eq!(all(&json!(["${search.a"])), Err(BadReference("${search.a".to_owned())));
        assert_eq!(all(&json!("$search and {no}")), Ok(Vec::new()));
    }
}
