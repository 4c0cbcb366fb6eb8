//! Parameters as they are written: `lr=log:1e-4..1e-1`, `batch=32|64|128`, `units3=int:16..64 if layers>=3`.

use std::fmt;
use std::str::FromStr;

use super::{Comparison, Condition, Domain, Parameter, Value};

/// A search that cannot be made sense of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    #[error("there is nothing to search: give at least one parameter, such as `lr=log:1e-4..1e-1`")]
    Empty,
    #[error(
        "every parameter of the search is constant: give at least one a range or several values, such as `batch=32|64`"
    )]
    Constant,
    #[error("`{0}` is searched twice")]
    Twice(String),
    #[error("`{0}` does not say what is searched: write a name, `=` and what it can be, such as `lr=log:1e-4..1e-1`")]
    NoName(String),
    #[error("`{0}` is no name of a parameter: letters, digits, `_`, `-` and `.` are allowed")]
    Name(String),
    #[error(
        "`{name}` cannot be searched in `{text}`: {why}; write `LOW..HIGH`, `log:LOW..HIGH`, `int:LOW..HIGH`, \
         `int:LOW..HIGH:STEP`, `int:log:LOW..HIGH`, or values as in `a|b|c`"
    )]
    Domain { name: String, text: String, why: String },
    #[error(
        "`{name}` cannot depend on `{text}`: {why}; write for example `if layers>=3`, `if optimizer=sgd|momentum` or \
         `if layers>=3 and optimizer!=sgd`"
    )]
    Condition { name: String, text: String, why: String },
    #[error("`{name}` depends on `{other}`, which is not searched")]
    Missing { name: String, other: String },
    #[error("`{0}` depends on itself")]
    Circle(String),
    #[error("`{name}` never counts: `{other}` is never as `{condition}` says")]
    Never { name: String, other: String, condition: String },
}

impl FromStr for Parameter {
    type Err = SpaceError;

    fn from_str(text: &str) -> Result<Self, SpaceError> {
        let Some((name, rest)) = text.split_once('=') else { return Err(SpaceError::NoName(shortened(text))) };
        let name = name.trim();
        let is_allowed = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_allowed) {
            return Err(SpaceError::Name(shortened(name)));
        }
        let (domain, conditions) = match rest.split_once(" if ") {
            Some((domain, conditions)) => (domain, conditions.split(" and ").collect()),
            None => (rest, Vec::new()),
        };
        let why = |text: &str, why: String| SpaceError::Domain { name: name.to_owned(), text: shortened(text), why };
        Ok(Self {
            domain: domain.trim().parse().map_err(|reason| why(domain.trim(), reason))?,
            conditions: conditions.into_iter().map(|text| condition(name, text.trim())).collect::<Result<_, _>>()?,
            name: name.to_owned(),
        })
    }
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut is_integer, mut log, mut rest) = (false, false, text);
        loop {
            rest = match rest.split_once(':') {
                Some(("int", after)) if !is_integer => {
                    is_integer = true;
                    after
                }
                Some(("log", after)) if !log => {
                    log = true;
                    after
                }
                _ => break,
            };
        }
        // A choice between words may have dots in it; a range has numbers on both sides.
        match rest.split_once("..") {
            Some((low, high)) if !rest.contains('|') => range(is_integer, log, low, high),
            _ if is_integer || log => Err("a range with `..` is missing".to_owned()),
            _ => choice(rest),
        }
    }
}

fn range(is_integer: bool, log: bool, low: &str, high: &str) -> Result<Domain, String> {
    let (high, step) = match high.split_once(':') {
        Some((high, step)) => (high, Some(step)),
        None => (high, None),
    };
    if log && step.is_some() {
        return Err("a logarithmic range has no step".to_owned());
    }
    let domain = if is_integer {
        let (low, high) = (integer(low)?, integer(high)?);
        let step = step.map(integer).transpose()?.unwrap_or(1);
        if step < 1 {
            return Err(format!("a step of {step} leads nowhere"));
        }
        if high.abs_diff(low) >= 1 << 53 {
            return Err("the range is too long".to_owned());
        }
        // The last value is the last that the steps come to.
        let high = if high > low { high - (high - low) % step } else { high };
        Domain::Integer { low, high, log, step }
    } else {
        let (low, high) = (finite(low)?, finite(high)?);
        let step = step.map(finite).transpose()?;
        if step.is_some_and(|step| step <= 0.0 || (high - low) / step >= 1e9) {
            return Err("a step must be a part of the range".to_owned());
        }
        if !(high - low).is_finite() {
            return Err("the range is too long".to_owned());
        }
        Domain::Number { low, high, log, step }
    };
    let (low, high) = match &domain {
        Domain::Integer { low, high, .. } => (*low as f64, *high as f64),
        Domain::Number { low, high, .. } => (*low, *high),
        _ => (0.0, 0.0),
    };
    if low > high {
        return Err("it begins above its end, so the ends are the wrong way round".to_owned());
    }
    if low == high {
        return Err("it holds one value only; write that value alone for a constant".to_owned());
    }
    if log && low <= 0.0 {
        return Err("a logarithmic range must begin above zero".to_owned());
    }
    Ok(domain)
}

fn choice(text: &str) -> Result<Domain, String> {
    let mut values: Vec<Value> = Vec::new();
    for part in text.split('|') {
        let value = value(part.trim())?;
        if values.iter().any(|known| known.is_same(&value)) {
            return Err(format!("`{value}` is in it twice"));
        }
        values.push(value);
    }
    if values.len() > 1 {
        Ok(Domain::Choice(values))
    } else {
        values.pop().map(Domain::Constant).ok_or_else(String::new)
    }
}

/// A number where the text is one.
pub fn value(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err("a value is empty".to_owned());
    }
    if let Ok(integer) = text.parse() {
        return Ok(Value::Integer(integer));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Value::Number(number)),
        Ok(_) => Err(format!("`{text}` is not a finite number")),
        Err(_) => Ok(Value::Text(text.to_owned())),
    }
}

fn finite(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        Ok(_) => Err(format!("`{}` is not a finite number", text.trim())),
        Err(_) => Err(format!("`{}` is no number", shortened(text.trim()))),
    }
}

fn integer(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("`{}` is no whole number", shortened(text.trim())))
}

/// In an order in which the longer ones are found first.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("!=", Comparison::IsNot),
    ("==", Comparison::Is),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
    ("=", Comparison::Is),
];

fn condition(name: &str, text: &str) -> Result<Condition, SpaceError> {
    let bad = |why: String| SpaceError::Condition { name: name.to_owned(), text: shortened(text), why };
    let found = text.find(['<', '>', '=', '!']).and_then(|at| {
        let fits = |(sign, _): &&(&str, Comparison)| text[at..].starts_with(sign);
        COMPARISONS.iter().find(fits).map(|(sign, comparison)| (&text[..at], *comparison, &text[at + sign.len()..]))
    });
    let Some((parameter, comparison, values)) = found else { return Err(bad("it compares nothing".to_owned())) };
    let values: Vec<Value> = values.split('|').map(|text| value(text.trim())).collect::<Result<_, _>>().map_err(bad)?;
    let is_order = !matches!(comparison, Comparison::Is | Comparison::IsNot);
    if is_order && (values.len() > 1 || values[0].number().is_none()) {
        return Err(bad("only one number can be less or greater".to_owned()));
    }
    Ok(Condition { parameter: parameter.trim().to_owned(), comparison, values })
}

/// The parameters in an order in which each follows those that it depends on.
pub fn arranged(mut left: Vec<Parameter>) -> Result<Vec<Parameter>, SpaceError> {
    if left.is_empty() {
        return Err(SpaceError::Empty);
    }
    if !left.iter().any(|parameter| parameter.domain.is_free()) {
        return Err(SpaceError::Constant);
    }
    for (index, parameter) in left.iter().enumerate() {
        if left[..index].iter().any(|other| other.name == parameter.name) {
            return Err(SpaceError::Twice(parameter.name.clone()));
        }
        for condition in &parameter.conditions {
            let Some(other) = left.iter().find(|other| other.name == condition.parameter) else {
                return Err(SpaceError::Missing { name: parameter.name.clone(), other: condition.parameter.clone() });
            };
            if !other.domain.can_be(condition) {
                let (name, other) = (parameter.name.clone(), other.name.clone());
                return Err(SpaceError::Never { name, other, condition: condition.to_string() });
            }
        }
    }
    let mut arranged: Vec<Parameter> = Vec::new();
    while !left.is_empty() {
        let is_ready = |parameter: &Parameter| {
            let is_there = |condition: &Condition| arranged.iter().any(|other| other.name == condition.parameter);
            parameter.conditions.iter().all(is_there)
        };
        match left.iter().position(is_ready) {
            Some(next) => arranged.push(left.remove(next)),
            None => return Err(SpaceError::Circle(left[0].name.clone())),
        }
    }
    Ok(arranged)
}

impl Domain {
    /// Whether a condition on a parameter of this domain can hold.
    fn can_be(&self, condition: &Condition) -> bool {
        let holds = |value: Value| condition.holds(&[(condition.parameter.clone(), value)].into());
        match self {
            Self::Choice(values) => values.iter().cloned().any(holds),
            Self::Constant(value) => holds(value.clone()),
            Self::Number { low, high, .. } => match condition.comparison {
                Comparison::Is => condition.values.iter().any(|value| self.contains(value)),
                Comparison::IsNot => true,
                Comparison::Less => condition.values[0].number().is_some_and(|bound| *low < bound),
                Comparison::Greater => condition.values[0].number().is_some_and(|bound| *high > bound),
                _ => holds(Value::Number(*low)) || holds(Value::Number(*high)),
            },
            Self::Integer { low, high, .. } => match condition.comparison {
                Comparison::Is => condition.values.iter().any(|value| self.contains(value)),
                _ => holds(Value::Integer(*low)) || holds(Value::Integer(*high)),
            },
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

impl fmt::Display for Domain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { low, high, log, step } => {
                write!(out, "{}{low:?}..{high:?}", if *log { "log:" } else { "" })?;
                step.map_or(Ok(()), |step| write!(out, ":{step:?}"))
            }
            Self::Integer { low, high, log, step } => {
                write!(out, "int:{}{low}..{high}", if *log { "log:" } else { "" })?;
                if *step == 1 { Ok(()) } else { write!(out, ":{step}") }
            }
            Self::Choice(values) => joined(values, out),
            Self::Constant(value) => value.fmt(out),
        }
    }
}

fn joined(values: &[Value], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        write!(out, "{}{value}", if index == 0 { "" } else { "|" })?;
    }
    Ok(())
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.comparison {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::AtLeast => ">=",
            Comparison::Greater => ">",
            Comparison::Is => "=",
            Comparison::IsNot => "!=",
        };
        write!(out, "{}{sign}", self.parameter)?;
        joined(&self.values, out)
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.domain)?;
        for (index, condition) in self.conditions.iter().enumerate() {
            write!(out, " {} {condition}", if index == 0 { "if" } else { "and" })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Parameter {
    type Error = SpaceError;

    fn try_from(text: String) -> Result<Self, SpaceError> {
        text.parse()
    }
}

impl From<Parameter> for String {
    fn from(parameter: Parameter) -> Self {
        parameter.to_string()
    }
}
