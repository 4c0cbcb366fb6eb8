//! What verbs print: JSON for programs; tables, colours and readable numbers for people.
//!
//! Everything that was asked for goes to stdout through [`Output`]; whatever is said about it goes to stderr.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Standard output could not be written. When whoever read it is gone, that is no failure.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct StdoutError(#[from] pub io::Error);

/// A way to set text off from the rest.
#[derive(Clone, Copy)]
pub enum Style {
    Dim,
    Bold,
    Green,
    Yellow,
    Red,
}

/// Standard output and standard error, as the global flags want them.
pub struct Output {
    json: bool,
    quiet: bool,
    stdout_colour: bool,
    stderr_colour: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let wanted = !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            json,
            quiet,
            stdout_colour: wanted && io::stdout().is_terminal(),
            stderr_colour: wanted && io::stderr().is_terminal(),
        }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The value as JSON, or what `human` makes of it.
    pub fn show<T: Serialize>(&self, value: &T, human: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string(value)? + "\n" } else { human() };
        Ok(self.bytes(text.as_bytes())?)
    }

    /// The value as JSON, or a sentence that says it is done, unless nobody wants to hear it.
    pub fn done<T: Serialize>(&self, value: &T, sentence: impl Display) -> anyhow::Result<()> {
        if self.quiet && !self.json {
            return Ok(());
        }
        self.show(value, || format!("{sentence}\n"))
    }

    /// Exactly these bytes on stdout.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), StdoutError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Something worth knowing, on stderr.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.diagnose(text);
        }
    }

    /// A line on stderr, whatever `--quiet` says.
    pub fn diagnose(&self, text: impl Display) {
        // There is nowhere left to say that this failed.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Text for stdout.
    pub fn paint(&self, style: Style, text: &str) -> String {
        painted(self.stdout_colour, style, text)
    }

    /// Text for stderr.
    pub fn paint_error(&self, style: Style, text: &str) -> String {
        painted(self.stderr_colour, style, text)
    }

    /// Rows under a header, each column as wide as its widest cell.
    pub fn table(&self, header: &[&str], rows: &[Vec<String>]) -> String {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([header[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        };
        let mut text = self.paint(Style::Dim, &line(&mut header.iter().copied())) + "\n";
        for row in rows {
            text += &(line(&mut row.iter().map(String::as_str)) + "\n");
        }
        text
    }

    /// Names and their values, one pair per line.
    pub fn fields(&self, rows: &[(&str, String)]) -> String {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line = |(name, value): &(&str, String)| {
            format!("{}  {value}\n", self.paint(Style::Dim, &format!("{name:<width$}")))
        };
        rows.iter().map(line).collect()
    }
}

fn painted(colour: bool, style: Style, text: &str) -> String {
    let code = match style {
        Style::Dim => "2",
        Style::Bold => "1",
        Style::Green => "32",
        Style::Yellow => "33",
        Style::Red => "31",
    };
    if colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Text from elsewhere without what would move the cursor or change the terminal.
pub fn harmless(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() && c != '\n' && c != '\t' { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(escape).collect()
}

/// Bytes to one decimal: `17.2 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, scale)| count >= *scale) {
        Some((unit, scale)) => format!("{:.1} {unit}", count as f64 / *scale as f64),
        None => format!("{count} B"),
    }
}

/// A short span of time: `85 µs`, `1.25 ms`, `3.40 s`.
pub fn microseconds(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} µs"),
        1_000..1_000_000 => format!("{:.2} ms", count as f64 / 1e3),
        _ => format!("{:.2} s", count as f64 / 1e6),
    }
}

/// Enough of a version's digest to tell it from the others.
pub fn short_version(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..12).unwrap_or(digits)
}

/// An RFC 3339 moment to the second.
pub fn moment(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => rfc3339.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Output {
        Output { json: false, quiet: false, stdout_colour: false, stderr_colour: false }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["überlang".to_owned(), "22".to_owned()]];
        assert_eq!(plain().table(&["NAME", "N"], &rows), "NAME      N\na         1\nüberlang  22\n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(harmless("a\x1b[2J\tb\nc\r"), "a\\u{1b}[2J\tb\nc\\r");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([bytes(0), bytes(1_536), bytes(3 << 30)], ["0 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([microseconds(85), microseconds(1_250), microseconds(3_400_000)], ["85 µs", "1.25 ms", "3.40 s"]);
        assert_eq!(moment("2026-01-31T12:30:00.250Z"), "2026-01-31T12:30:00Z");
    }
}
