//! What a trainer says of itself is kept with its jobs and copied into errors: it has limits.

use crate::host::bindings::weft::train::training::{Description, HyperParameter, Value};
use crate::sandbox::InvokeError;

/// Hyper-parameters of one trainer.
pub const MAX_PARAMETERS: usize = 256;
/// Bytes of a hyper-parameter's name.
pub const MAX_PARAMETER_NAME: usize = 64;
/// Bytes of a summary, of a text that a parameter has as its default, and of one that it may be.
pub const MAX_PARAMETER_TEXT: usize = 4 << 10;
/// Texts that one parameter may be.
pub const MAX_CHOICES: usize = 64;

/// Refuses what is too much to keep.
pub fn check(description: &Description) -> Result<(), InvokeError> {
    let parameters = &description.hyper_parameters;
    if parameters.len() > MAX_PARAMETERS {
        let has = parameters.len();
        return Err(quota(format!("it has {has} hyper-parameters; there may be {MAX_PARAMETERS} (`max_parameters`)")));
    }
    check_text("the trainer's summary", &description.summary)?;
    parameters.iter().try_for_each(check_parameter)
}

fn check_parameter(parameter: &HyperParameter) -> Result<(), InvokeError> {
    let name = &parameter.name;
    if name.is_empty() || name.len() > MAX_PARAMETER_NAME || name.chars().any(char::is_control) {
        let start: String = name.chars().take(MAX_PARAMETER_NAME).flat_map(char::escape_debug).collect();
        let message = format!(
            "a hyper-parameter's name has 1 to {MAX_PARAMETER_NAME} bytes (`max_parameter_name`) and no control \
             characters, and `{start}` has {} bytes",
            name.len()
        );
        return Err(InvokeError::Function { kind: "bad-input", message });
    }
    if parameter.choices.len() > MAX_CHOICES {
        let has = parameter.choices.len();
        return Err(quota(format!(
            "hyper-parameter `{name}` has {has} choices; there may be {MAX_CHOICES} (`max_choices`)"
        )));
    }
    let values = [Some(&parameter.default), parameter.low.as_ref(), parameter.high.as_ref()];
    let texts = values.into_iter().flatten().filter_map(|value| match value {
        Value::Text(text) => Some(text),
        Value::Integer(_) | Value::Real(_) | Value::Boolean(_) => None,
    });
    let mut texts = texts.chain(&parameter.choices).chain([&parameter.summary]);
    texts.try_for_each(|text| check_text(&format!("a text of hyper-parameter `{name}`"), text))
}

fn check_text(what: &str, text: &str) -> Result<(), InvokeError> {
    if text.len() <= MAX_PARAMETER_TEXT {
        return Ok(());
    }
    let has = text.len();
    Err(quota(format!("{what} has {has} bytes; it may have {MAX_PARAMETER_TEXT} (`max_parameter_text`)")))
}

fn quota(message: String) -> InvokeError {
    InvokeError::Function { kind: "quota", message }
}
