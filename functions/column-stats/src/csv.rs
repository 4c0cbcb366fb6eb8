//! The records of a CSV text (RFC 4180): fields in quotes may hold commas, line ends and doubled quotes.
//!
//! Blank lines are skipped. Fields are borrowed from the text unless a doubled quote makes that impossible.

use std::borrow::Cow;

use weft_sdk::{Error, Result};

/// The records of a text, each with the line that it starts on.
pub struct Records<'a> {
    rest: &'a str,
    line: u64,
}

impl<'a> Records<'a> {
    pub fn new(text: &'a str) -> Self {
        // Spreadsheets put a byte order mark in front, which would become part of the first column's name.
        Self { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 }
    }

    /// Take one field and say whether the record goes on after it.
    fn field(&mut self) -> Result<(Cow<'a, str>, bool)> {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
            let field = &self.rest[..end];
            self.rest = &self.rest[end..];
            return Ok((field.strip_suffix('\r').unwrap_or(field).into(), self.separator()));
        };
        let opened = self.line;
        let mut field = Cow::Borrowed("");
        let mut after = quoted;
        loop {
            let Some(end) = after.find('"') else {
                return Err(Error::bad_input(format!("line {opened}: a quote is opened and never closed")));
            };
            match &mut field {
                Cow::Borrowed("") => field = Cow::Borrowed(&after[..end]),
                other => other.to_mut().push_str(&after[..end]),
            }
            after = &after[end + 1..];
            match after.strip_prefix('"') {
                Some(goes_on) => {
                    field.to_mut().push('"');
                    after = goes_on;
                }
                None => break,
            }
        }
        self.line += field.matches('\n').count() as u64;
        self.rest = after.strip_prefix('\r').unwrap_or(after);
        if !(self.rest.is_empty() || self.rest.starts_with([',', '\n'])) {
            return Err(Error::bad_input(format!("line {}: text follows a closing quote", self.line)));
        }
        Ok((field, self.separator()))
    }

    fn separator(&mut self) -> bool {
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            return true;
        }
        self.end_line();
        false
    }

    fn end_line(&mut self) {
        if let Some(rest) = self.rest.strip_prefix('\n') {
            self.rest = rest;
            self.line += 1;
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u64, Vec<Cow<'a, str>>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.rest.starts_with('\n') || self.rest.starts_with("\r\n") {
            self.rest = self.rest.trim_start_matches('\r');
            self.end_line();
        }
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            match self.field() {
                Ok((field, goes_on)) => {
                    fields.push(field);
                    if !goes_on {
                        return Some(Ok((line, fields)));
                    }
                }
                Err(error) => {
                    self.rest = "";
                    return Some(Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(u64, Vec<String>)> {
        Records::new(text)
            .map(|record| record.expect("a valid table"))
            .map(|(line, fields)| (line, fields.into_iter().map(Cow::into_owned).collect()))
            .collect()
    }

    fn record(line: u64, fields: &[&str]) -> (u64, Vec<String>) {
        (line, fields.iter().map(|field| field.to_string()).collect())
    }

    #[test]
    fn fields_end_at_commas_and_either_line_end() {
        assert_eq!(all("a,b\r\n1,\n,2"), [record(1, &["a", "b"]), record(2, &["1", ""]), record(3, &["", "2"])]);
    }

    #[test]
    fn quotes_hold_commas_line_ends_and_doubled_quotes() {
        assert_eq!(
            all("\"a,b\",\"say \"\"hi\"\"\"\n\"two\nlines\",x\r\nlast,1"),
            [record(1, &["a,b", "say \"hi\""]), record(2, &["two\nlines", "x"]), record(4, &["last", "1"])]
        );
        assert_eq!(all("\"\"\"\"\n"), [record(1, &["\""])]);
    }

    #[test]
    fn blank_lines_are_skipped_but_counted() {
        assert_eq!(all("\u{feff}a\n\n\r\nb\n\n"), [record(1, &["a"]), record(4, &["b"])]);
    }

    #[test]
    fn broken_quotes_are_refused_by_line() {
        let refusal = |text| Records::new(text).find_map(Result::err).map(|error| error.message().to_owned());
        assert_eq!(refusal("a\n\"b"), Some("line 2: a quote is opened and never closed".into()));
        assert_eq!(refusal("\"a\"b"), Some("line 1: text follows a closing quote".into()));
    }
}
