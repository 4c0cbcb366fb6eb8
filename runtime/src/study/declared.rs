//! The search that a function declares: its hyper-parameters with bounds or choices.

use weft_core::tune::space::{Domain, Parameter, Value as Searched};

use crate::host::bindings::weft::train::training::{Description, HyperParameter, Value};

/// What a function's own declaration says can be searched. Parameters without two bounds, and texts without choices, are left
/// as they are by default.
pub fn parameters(description: &Description) -> Vec<Parameter> {
    description.hyper_parameters.iter().filter_map(parameter).collect()
}

fn parameter(declared: &HyperParameter) -> Option<Parameter> {
    let domain = match &declared.default {
        Value::Boolean(_) => Domain::Choice(["false", "true"].map(|word| Searched::Text(word.to_owned())).to_vec()),
        Value::Text(_) => match &declared.choices[..] {
            [] | [_] => return None,
            choices => Domain::Choice(choices.iter().cloned().map(Searched::Text).collect()),
        },
        Value::Integer(_) => {
            let (Some(Value::Integer(low)), Some(Value::Integer(high))) = (&declared.low, &declared.high) else {
                return None;
            };
            Domain::Integer { low: *low, high: *high, log: declared.logarithmic && *low > 0, step: 1 }
        }
        Value::Real(_) => {
            let (Some(Value::Real(low)), Some(Value::Real(high))) = (&declared.low, &declared.high) else {
                return None;
            };
            Domain::Number { low: *low, high: *high, log: declared.logarithmic && *low > 0.0, step: None }
        }
    };
    // It is written and read as any other is; what cannot be is left out.
    let text = format!("params.{}={domain}", declared.name);
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::bindings::weft::train::training::Traits;

    fn declared(name: &str, default: Value, bounds: Option<(Value, Value)>, choices: &[&str]) -> HyperParameter {
        let (low, high) = bounds.unzip();
        HyperParameter {
            name: name.to_owned(),
            summary: String::new(),
            default,
            low,
            high,
            choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
            logarithmic: name == "decay",
        }
    }

    #[test]
    fn what_has_bounds_or_choices_is_searched() {
        let description = Description {
            summary: String::new(),
            traits: Traits::empty(),
            hyper_parameters: vec![
                declared("dropout", Value::Real(0.5), Some((Value::Real(0.0), Value::Real(0.9))), &[]),
                declared("decay", Value::Real(1e-4), Some((Value::Real(1e-6), Value::Real(0.1))), &[]),
                declared("hidden", Value::Integer(8), Some((Value::Integer(4), Value::Integer(64))), &[]),
                declared("depth", Value::Text("18".to_owned()), None, &["18", "34"]),
                declared("bias", Value::Boolean(true), None, &[]),
                declared("classes", Value::Integer(10), None, &[]),
                declared("same", Value::Integer(1), Some((Value::Integer(1), Value::Integer(1))), &[]),
            ],
        };
        let texts: Vec<String> = parameters(&description).iter().map(ToString::to_string).collect();
        let expected = [
            "params.dropout=0.0..0.9",
            "params.decay=log:1e-6..0.1",
            "params.hidden=int:4..64",
            "params.depth=18|34",
            "params.bias=false|true",
        ];
        assert_eq!(texts, expected);
    }
}
