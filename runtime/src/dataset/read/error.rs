//! What can be wrong with a file: always which file, and where in it.

use std::fmt;
use std::io;

/// Characters of a cell or a name that an error repeats.
const EXCERPT: usize = 40;

/// A file that cannot be read as samples.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What the file holds is not what it should hold.
    #[error("`{file}`{place}: {problem}")]
    Content { file: String, place: Place, problem: String },
    /// The machine could not read the file.
    #[error("cannot read `{file}`: {cause}")]
    Io { file: String, cause: io::Error },
    /// What was asked for does not fit the files.
    #[error("{0}")]
    Asked(String),
}

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A line of text, the first being 1.
    Line(u64),
    /// A byte of the file, the first being 0.
    Byte(u64),
    /// A byte of what the file expands to.
    Expanded(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line(line) => write!(out, ", line {line}"),
            Self::Byte(byte) => write!(out, ", byte {byte}"),
            Self::Expanded(byte) => write!(out, ", byte {byte} when expanded"),
        }
    }
}

impl ReadError {
    pub(super) fn content(file: &str, place: Place, problem: impl Into<String>) -> Self {
        Self::Content { file: file.escape_debug().to_string(), place, problem: problem.into() }
    }

    pub(super) fn io(file: &str, cause: io::Error) -> Self {
        Self::Io { file: file.escape_debug().to_string(), cause }
    }
}

/// Bytes of a file as an error may show them: short, on one line, no control characters.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes are the longest character there is.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * EXCERPT)]);
    let mut short: String = text.chars().take(EXCERPT).flat_map(char::escape_debug).collect();
    if text.chars().count() > EXCERPT || bytes.len() > 4 * EXCERPT {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_shows_control_characters() {
        assert_eq!(excerpt(b"a\tb\x1b["), "a\\tb\\u{1b}[");
        assert_eq!(excerpt(&[b'x'; 1000]), format!("{}…", "x".repeat(40)));
        assert_eq!(excerpt(&[0xff]), "\u{fffd}");
    }
}
