//! Hyper-parameters: what a caller may choose, as a struct.
//!
//! The derive macro describes the fields to the host, so that a tuner knows the space, and parses a caller's settings.
//! A name is the field's with hyphens, a summary its doc comment. Every field has a default; numbers may have bounds,
//! which are allowed themselves, and texts a list of choices; `log` says that equal factors matter, and not equal steps.
//!
//! ```
//! use weft_sdk::HyperParameters;
//! use weft_sdk::hyper::{Setting, Value};
//!
//! #[derive(HyperParameters)]
//! struct Parameters {
//!     /// How much of the last layer's input is dropped in training.
//!     #[hyper(default = 0.5, low = 0.0, high = 0.9)]
//!     dropout: f32,
//!     /// How far weights are pulled to zero.
//!     #[hyper(default = 1e-4, low = 0.0, high = 0.1, log)]
//!     weight_decay: f32,
//!     /// How many layers there are.
//!     #[hyper(default = "18", choices = ["18", "34"])]
//!     depth: String,
//! }
//!
//! let set = |name: &str, value| Parameters::parse(vec![Setting { name: name.into(), value }]);
//! let parameters = set("weight-decay", Value::Real(0.01)).unwrap();
//! assert_eq!((parameters.dropout, parameters.weight_decay), (0.5, 0.01));
//! let refused = set("dropout", Value::Real(1.5)).err().unwrap();
//! assert_eq!(refused.message(), "hyper-parameter `dropout`: `1.5` is above `0.9`");
//! ```

use std::fmt::{self, Display};

use crate::{Error, Result};

pub use crate::bindings::weft::train::training::{HyperParameter, Setting, Value};

/// A struct of hyper-parameters; derive it.
pub trait HyperParameters: Sized {
    /// What there is to choose.
    fn describe() -> Vec<HyperParameter>;

    /// A caller's choice, and defaults for what was not chosen. What is unknown, twice there, of another type or out of
    /// bounds is refused.
    fn parse(settings: Vec<Setting>) -> Result<Self>;
}

/// Nothing to choose.
impl HyperParameters for () {
    fn describe() -> Vec<HyperParameter> {
        Vec::new()
    }

    fn parse(settings: Vec<Setting>) -> Result<Self> {
        Settings::new(settings, Vec::new()).map(drop)
    }
}

/// A type that a hyper-parameter can have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a hyper-parameter",
    label = "a number, a `bool` or a `String` can be chosen"
)]
pub trait HyperValue: Sized {
    fn into_value(self) -> Value;

    /// `None` if it does not fit.
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty)+) => {
        $(impl HyperValue for $type {
            fn into_value(self) -> Value {
                Value::Integer(i64::try_from(self).unwrap_or(i64::MAX))
            }

            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::Integer(value) => value.try_into().ok(),
                    _ => None,
                }
            }
        })+
    };
}

integers! { u8 u16 u32 u64 usize i32 i64 }

impl HyperValue for f64 {
    fn into_value(self) -> Value {
        Value::Real(self)
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Real(value) => Some(value),
            _ => None,
        }
    }
}

impl HyperValue for f32 {
    /// By way of the shortest text that means this number, so that 0.1 does not become 0.10000000149.
    fn into_value(self) -> Value {
        Value::Real(self.to_string().parse().unwrap_or(f64::from(self)))
    }

    fn from_value(value: Value) -> Option<Self> {
        f64::from_value(value).map(|value| value as Self)
    }
}

impl HyperValue for bool {
    fn into_value(self) -> Value {
        Value::Boolean(self)
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(value),
            _ => None,
        }
    }
}

impl HyperValue for String {
    fn into_value(self) -> Value {
        Value::Text(self)
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Text(value) => Some(value),
            _ => None,
        }
    }
}

impl Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(out),
            Self::Real(value) => value.fmt(out),
            Self::Text(value) => value.fmt(out),
            Self::Boolean(value) => value.fmt(out),
        }
    }
}

/// A caller's settings that have been checked against what there is.
pub struct Settings {
    settings: Vec<Setting>,
    declared: Vec<HyperParameter>,
}

impl Settings {
    pub fn new(mut settings: Vec<Setting>, declared: Vec<HyperParameter>) -> Result<Self> {
        for index in 0..settings.len() {
            let (earlier, rest) = settings.split_at_mut(index);
            let Setting { name, value } = &mut rest[0];
            let Some(parameter) = declared.iter().find(|parameter| parameter.name == *name) else {
                return Err(unknown(name, &declared));
            };
            if earlier.iter().any(|setting| setting.name == *name) {
                return Err(Error::bad_input(format!("hyper-parameter `{name}` is set twice")));
            }
            *value = check(parameter, value)
                .map_err(|reason| Error::bad_input(format!("hyper-parameter `{name}`: `{value}` {reason}")))?;
        }
        Ok(Self { settings, declared })
    }

    /// The caller's value of this name, or the default.
    pub fn take<T: HyperValue>(&mut self, name: &str) -> Result<T> {
        let set = self.settings.iter_mut().find(|setting| setting.name == name).map(|setting| &setting.value);
        let default = || self.declared.iter().find(|parameter| parameter.name == name).map(|found| &found.default);
        let Some(value) = set.or_else(default) else { return Err(unknown(name, &self.declared)) };
        T::from_value(value.clone()).ok_or_else(|| {
            Error::bad_input(format!("hyper-parameter `{name}`: `{value}` is out of range for its type"))
        })
    }
}

fn unknown(name: &str, declared: &[HyperParameter]) -> Error {
    let names: Vec<String> = declared.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
    let there = if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
    Error::bad_input(format!("no hyper-parameter `{name}`; {there}"))
}

/// The value in the type of the parameter, or what is wrong with it.
fn check(parameter: &HyperParameter, value: &Value) -> Result<Value, String> {
    let value = match (&parameter.default, value) {
        (Value::Integer(_), Value::Integer(_)) | (Value::Boolean(_), Value::Boolean(_)) => value.clone(),
        // Beyond 2^53 not every whole number is one that an f64 holds.
        (Value::Integer(_), Value::Real(real)) if real.fract() == 0.0 && real.abs() <= 9e15 => {
            Value::Integer(*real as i64)
        }
        (Value::Real(_), Value::Real(real)) if real.is_finite() => value.clone(),
        (Value::Real(_), Value::Integer(integer)) => Value::Real(*integer as f64),
        (Value::Text(_), value) => Value::Text(value.to_string()),
        (Value::Integer(_), _) => return Err("is not a whole number".into()),
        (Value::Real(_), _) => return Err("is not a number".into()),
        (Value::Boolean(_), _) => return Err("is neither `true` nor `false`".into()),
    };
    if let Some(low) = parameter.low.as_ref().filter(|low| below(&value, low)) {
        return Err(format!("is below `{low}`"));
    }
    if let Some(high) = parameter.high.as_ref().filter(|high| below(high, &value)) {
        return Err(format!("is above `{high}`"));
    }
    match &value {
        Value::Text(text) if !parameter.choices.is_empty() && !parameter.choices.contains(text) => {
            let choices: Vec<String> = parameter.choices.iter().map(|choice| format!("`{choice}`")).collect();
            Err(format!("is not one of {}", choices.join(", ")))
        }
        _ => Ok(value),
    }
}

fn below(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a < b,
        (Value::Real(a), Value::Real(b)) => a < b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(crate::HyperParameters, Debug, PartialEq)]
    struct Parameters {
        /// How wide
        /// the layers are.
        ///
        /// More is slower.
        #[hyper(default = 8, low = 1, high = 64)]
        hidden_width: u32,
        #[hyper(default = 0.1, low = 0.0, high = 1.0, log)]
        rate: f32,
        #[hyper(default = "small", choices = ["small", "large"])]
        stem: String,
        #[hyper(default = true)]
        bias: bool,
    }

    fn parse(settings: &[(&str, Value)]) -> Result<Parameters> {
        let settings = settings.iter().map(|(name, value)| Setting { name: (*name).into(), value: value.clone() });
        Parameters::parse(settings.collect())
    }

    fn refusal(name: &str, value: Value) -> String {
        parse(&[(name, value)]).expect_err("refused").message().to_owned()
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let defaults = Parameters { hidden_width: 8, rate: 0.1, stem: "small".into(), bias: true };
        assert_eq!(parse(&[]), Ok(defaults));
        assert_eq!(Parameters::default(), parse(&[]).unwrap());
    }

    #[test]
    fn numbers_are_taken_in_either_form_where_nothing_is_lost() {
        let parsed = parse(&[("hidden-width", Value::Real(16.0)), ("rate", Value::Integer(1))]).unwrap();
        assert_eq!((parsed.hidden_width, parsed.rate), (16, 1.0));
        assert_eq!(
            refusal("hidden-width", Value::Real(1.5)),
            "hyper-parameter `hidden-width`: `1.5` is not a whole number"
        );
    }

    #[test]
    fn a_refusal_names_parameter_value_and_bound() {
        assert_eq!(refusal("hidden-width", Value::Integer(0)), "hyper-parameter `hidden-width`: `0` is below `1`");
        assert_eq!(refusal("rate", Value::Real(1.5)), "hyper-parameter `rate`: `1.5` is above `1`");
        assert_eq!(refusal("rate", Value::Real(f64::NAN)), "hyper-parameter `rate`: `NaN` is not a number");
        assert_eq!(refusal("bias", Value::Integer(1)), "hyper-parameter `bias`: `1` is neither `true` nor `false`");
        assert_eq!(
            refusal("stem", Value::Text("huge".into())),
            "hyper-parameter `stem`: `huge` is not one of `small`, `large`"
        );
    }

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        assert_eq!(
            refusal("width", Value::Integer(1)),
            "no hyper-parameter `width`; there are `hidden-width`, `rate`, `stem`, `bias`"
        );
        let twice = parse(&[("rate", Value::Real(0.2)), ("rate", Value::Real(0.2))]);
        assert_eq!(twice, Err(Error::bad_input("hyper-parameter `rate` is set twice")));
        assert!(<()>::parse(Vec::new()).is_ok());
    }

    #[test]
    fn the_description_is_made_of_the_fields() {
        let described = Parameters::describe();
        assert_eq!(described[0].name, "hidden-width");
        assert_eq!(described[0].summary, "How wide the layers are.");
        assert_eq!((&described[0].low, &described[0].high), (&Some(Value::Integer(1)), &Some(Value::Integer(64))));
        assert_eq!(described[1].default, Value::Real(0.1));
        assert!(described[1].logarithmic && !described[0].logarithmic);
        assert_eq!(described[2].choices, ["small", "large"]);
    }
}
