//! What is stored: bytes, tensors and counters, with a version.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use weft_gpu::{DType, MAX_RANK};

/// What the bytes of a value are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    Bytes,
    /// Elements in row-major order, least significant byte first.
    Tensor {
        dtype: Type,
        shape: Vec<u64>,
    },
    /// A number to be counted with: eight bytes, least significant first.
    Counter,
}

impl Form {
    /// How many dimensions it has.
    fn rank(&self) -> usize {
        match self {
            Self::Tensor { shape, .. } => shape.len(),
            Self::Bytes | Self::Counter => 0,
        }
    }

    /// A form as it was stored. What was stored before shapes had a limit is but bytes if it is over it.
    pub(super) fn stored(self) -> Self {
        if self.rank() > MAX_RANK { Self::Bytes } else { self }
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes => out.write_str("bytes"),
            Self::Tensor { dtype, shape } => write!(out, "{} {shape:?}", dtype.0),
            Self::Counter => out.write_str("counter"),
        }
    }
}

impl std::str::FromStr for Form {
    type Err = String;

    /// As it is shown.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{}` is no form of a value", text.chars().take(80).collect::<String>());
        match text.split_once(' ') {
            None if text == "bytes" => Ok(Self::Bytes),
            None if text == "counter" => Ok(Self::Counter),
            Some((dtype, shape)) => {
                let inner = shape.strip_prefix('[').and_then(|shape| shape.strip_suffix(']')).ok_or_else(bad)?;
                if inner.split(',').take(MAX_RANK + 1).count() > MAX_RANK {
                    return Err(format!("a shape has at most {MAX_RANK} dimensions"));
                }
                let sizes = inner.split(',').map(str::trim).filter(|_| !inner.is_empty());
                let shape = sizes.map(|size| size.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
                Ok(Self::Tensor { dtype: Type::try_from(dtype.to_owned())?, shape })
            }
            None => Err(bad()),
        }
    }
}

/// A type of elements, written as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Type(pub DType);

impl TryFrom<String> for Type {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
        found.map(Self).ok_or_else(|| format!("`{name}` is no type of elements"))
    }
}

impl From<Type> for String {
    fn from(of: Type) -> Self {
        of.0.name().to_owned()
    }
}

/// A value. Cloning it shares its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub form: Form,
    pub data: Bytes,
}

/// Bytes and a form that do not go together.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadValue {
    #[error("{form} is {needed} bytes, and {given} came")]
    Length { form: Form, needed: String, given: usize },
    #[error("a shape of {0} dimensions is more than {MAX_RANK}")]
    Rank(usize),
}

impl Value {
    pub fn bytes(data: impl Into<Bytes>) -> Self {
        Self { form: Form::Bytes, data: data.into() }
    }

    pub fn counter(count: i64) -> Self {
        Self { form: Form::Counter, data: Bytes::copy_from_slice(&count.to_le_bytes()) }
    }

    pub fn tensor(dtype: DType, shape: Vec<u64>, data: impl Into<Bytes>) -> Result<Self, BadValue> {
        Self { form: Form::Tensor { dtype: Type(dtype), shape }, data: data.into() }.checked()
    }

    /// The value, if its bytes are as many as its form needs.
    pub fn checked(self) -> Result<Self, BadValue> {
        if self.form.rank() > MAX_RANK {
            return Err(BadValue::Rank(self.form.rank()));
        }
        let needed = match &self.form {
            Form::Bytes => Some(self.data.len() as u64),
            Form::Counter => Some(8),
            Form::Tensor { dtype, shape } => {
                shape.iter().try_fold(dtype.0.size() as u64, |bytes, &extent| bytes.checked_mul(extent))
            }
        };
        if needed == Some(self.data.len() as u64) {
            return Ok(self);
        }
        let needed = needed.map_or_else(|| "too many".to_owned(), |needed| needed.to_string());
        Err(BadValue::Length { needed, given: self.data.len(), form: self.form })
    }

    /// The bytes that are kept of it: its own, and a size for each dimension.
    pub fn stored_bytes(&self) -> u64 {
        (self.data.len() + self.form.rank() * size_of::<u64>()) as u64
    }

    /// The number, if it is a counter.
    pub fn count(&self) -> Option<i64> {
        let bytes = self.data.as_ref().try_into().ok()?;
        (self.form == Form::Counter).then(|| i64::from_le_bytes(bytes))
    }
}

/// A value as it was at a version. Versions of a name only grow, also over a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub version: u64,
    pub value: Value,
    pub expires: Option<Moment>,
}

impl Entry {
    pub fn head(&self) -> Head {
        let Self { version, value: Value { form, data }, expires } = self;
        Head { version: *version, form: form.clone(), bytes: data.len() as u64, expires: *expires }
    }
}

/// All of an entry but its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub version: u64,
    pub form: Form,
    pub bytes: u64,
    pub expires: Option<Moment>,
}

/// Milliseconds since 1970, so that it means the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn after(self, span: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_has_as_many_bytes_as_its_shape_says() {
        assert!(Value::tensor(DType::F32, vec![2, 3], vec![0; 24]).is_ok());
        let error = Value::tensor(DType::F32, vec![2, 3], vec![0; 23]).unwrap_err();
        assert_eq!(error.to_string(), "f32 [2, 3] is 24 bytes, and 23 came");
        assert!(Value::tensor(DType::F32, vec![u64::MAX, 2], vec![0; 8]).is_err());
        assert!(Value::tensor(DType::F32, vec![0], vec![]).is_ok());
    }

    #[test]
    fn forms_are_read_as_they_are_shown() {
        for text in ["bytes", "counter", "f32 [2, 3]", "u8 []", "f16 [7]"] {
            assert_eq!(text.parse::<Form>().unwrap().to_string(), text);
        }
        for bad in ["", "f32", "f33 [1]", "f32 [", "f32 [1,]", "f32 [-1]", "counter [1]"] {
            assert!(bad.parse::<Form>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_shape_has_few_dimensions_and_they_count() {
        let shape = |rank: usize| vec![1; rank];
        let widest = Value::tensor(DType::U8, shape(MAX_RANK), vec![7]).unwrap();
        assert_eq!(widest.stored_bytes(), 1 + 8 * MAX_RANK as u64);
        assert_eq!(Value::tensor(DType::U8, shape(MAX_RANK + 1), vec![7]), Err(BadValue::Rank(MAX_RANK + 1)));
        assert!(format!("u8 [{}]", ["1"; MAX_RANK].join(", ")).parse::<Form>().is_ok());
        let error = format!("u8 [{}]", vec!["1"; 30_000].join(",")).parse::<Form>().unwrap_err();
        assert!(error.contains(&MAX_RANK.to_string()), "{error}");
        let old = Form::Tensor { dtype: Type(DType::U8), shape: shape(30_000) };
        assert_eq!(old.stored(), Form::Bytes);
    }

    #[test]
    fn only_a_counter_counts() {
        assert_eq!(Value::counter(-3).count(), Some(-3));
        assert_eq!(Value::bytes(vec![0; 8]).count(), None);
    }
}
