//! What a function gives back when it cannot answer, and how other errors become it.
//!
//! `?` works on any error of the standard library or another crate and makes it [`Error::Other`]. Whether it was the
//! caller's fault is for the function to say: `.bad_input("…")` instead of `.context("…")`.

use std::error::Error as StdError;
use std::fmt::{self, Display};

/// The result of a function, and of what it asks of the host.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the cases that a caller can act on.
///
/// It does not implement [`std::error::Error`], because then nothing else could turn into it with `?`.
///
/// ```
/// use weft_sdk::{Context, Error, Result};
///
/// fn rate(text: &str) -> Result<f64> {
///     let rate: f64 = text.trim().parse().bad_input("the learning rate")?;
///     if rate <= 0.0 {
///         return Err(Error::bad_input(format!("the learning rate must be above 0, not `{rate}`")));
///     }
///     Ok(rate)
/// }
///
/// assert_eq!(rate("0.1"), Ok(0.1));
/// assert_eq!(rate("fast"), Err(Error::bad_input("the learning rate: invalid float literal")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The caller's input is not what the function takes.
    BadInput(String),
    /// Tensor shapes or types that do not fit the operation.
    BadShape(String),
    /// A limit of the tenant; the text names it.
    Quota(String),
    /// The device has no room for the tensor within the lease.
    OutOfDeviceMemory(String),
    /// The invocation or job is being stopped.
    Cancelled,
    /// The device went away; the work can be done again elsewhere.
    DeviceLost(String),
    /// There is nothing under that name.
    NotFound(String),
    /// Somebody else changed it first.
    Conflict(String),
    /// Anything else, in the function's own words.
    Other(String),
}

impl Error {
    /// The caller's input is not what the function takes.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self::BadInput(message.into())
    }

    /// Tensor shapes or types that do not fit the operation.
    pub fn bad_shape(message: impl Into<String>) -> Self {
        Self::BadShape(message.into())
    }

    /// There is nothing under that name.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound(message.into())
    }

    /// Somebody else changed it first.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::Conflict(message.into())
    }

    /// Anything else.
    pub fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }

    /// What went wrong, without its case. Empty for [`Error::Cancelled`], which says it all.
    pub fn message(&self) -> &str {
        match self {
            Self::BadInput(message)
            | Self::BadShape(message)
            | Self::Quota(message)
            | Self::OutOfDeviceMemory(message)
            | Self::DeviceLost(message)
            | Self::NotFound(message)
            | Self::Conflict(message)
            | Self::Other(message) => message,
            Self::Cancelled => "",
        }
    }

    /// The same case, with what was being done in front of its message.
    pub fn context(mut self, doing: impl Display) -> Self {
        match &mut self {
            Self::BadInput(message)
            | Self::BadShape(message)
            | Self::Quota(message)
            | Self::OutOfDeviceMemory(message)
            | Self::DeviceLost(message)
            | Self::NotFound(message)
            | Self::Conflict(message)
            | Self::Other(message) => *message = format!("{doing}: {message}"),
            Self::Cancelled => {}
        }
        self
    }
}

impl Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = match self {
            Self::BadInput(_) => "bad input",
            Self::BadShape(_) => "bad shape",
            Self::Quota(_) => "over quota",
            Self::OutOfDeviceMemory(_) => "out of device memory",
            Self::Cancelled => return formatter.write_str("cancelled"),
            Self::DeviceLost(_) => "device lost",
            Self::NotFound(_) => "not found",
            Self::Conflict(_) => "conflict",
            Self::Other(message) => return formatter.write_str(message),
        };
        write!(formatter, "{case}: {}", self.message())
    }
}

impl<E: StdError> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Other(with_causes(&error))
    }
}

/// The error and what caused it, as one line. Not generic, so that it is compiled once.
fn with_causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Says what was being done when something failed or was missing.
///
/// ```
/// use weft_sdk::{Context, Error};
///
/// let missing: Option<u8> = None;
/// assert_eq!(missing.context("no such column"), Err(Error::other("no such column")));
/// assert_eq!("x".parse::<u8>().bad_input("the age"), Err(Error::bad_input("the age: invalid digit found in string")));
/// ```
pub trait Context<T> {
    /// Put `doing` in front of the error's message; an error of ours keeps its case.
    fn context(self, doing: impl Display) -> Result<T>;

    /// Like `context`, for words that are put together only if they are needed.
    fn with_context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T>;

    /// Like `context`, and it is the caller's input that is at fault.
    fn bad_input(self, doing: impl Display) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, doing: impl Display) -> Result<T> {
        self.map_err(|error| error.into().context(doing))
    }

    fn with_context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().context(doing()))
    }

    fn bad_input(self, doing: impl Display) -> Result<T> {
        self.map_err(|error| Error::BadInput(format!("{doing}: {}", error.into().message())))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, doing: impl Display) -> Result<T> {
        self.ok_or_else(|| Error::Other(doing.to_string()))
    }

    fn with_context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.ok_or_else(|| Error::Other(doing().to_string()))
    }

    fn bad_input(self, doing: impl Display) -> Result<T> {
        self.ok_or_else(|| Error::BadInput(doing.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_mark_takes_errors_of_the_standard_library() {
        fn parse(text: &str) -> Result<u8> {
            Ok(text.parse()?)
        }
        assert_eq!(parse("7"), Ok(7));
        assert_eq!(parse("x"), Err(Error::other("invalid digit found in string")));
    }

    #[test]
    fn context_keeps_the_case_of_our_own_error() {
        let failed: Result<()> = Err(Error::not_found("no tensor `w`"));
        assert_eq!(failed.context("loading the model"), Err(Error::not_found("loading the model: no tensor `w`")));
    }

    #[test]
    fn causes_follow_the_error_they_caused() {
        let cause = "x".parse::<u8>().map_err(std::io::Error::other);
        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl Display for Outer {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("reading the header")
            }
        }
        impl StdError for Outer {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer(cause.expect_err("`x` is no number")));
        assert!(error.message().starts_with("reading the header: invalid digit"), "{error}");
    }

    #[test]
    fn display_names_the_case() {
        assert_eq!(Error::bad_input("no header").to_string(), "bad input: no header");
        assert_eq!(Error::Cancelled.to_string(), "cancelled");
        assert_eq!(Error::other("as it is").to_string(), "as it is");
    }
}
