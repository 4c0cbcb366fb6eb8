//! Rows of cells: csv and its cousins with semicolons and tabs. Knows nothing of numbers and labels.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::error::{Place, ReadError};
use super::source::Input;
use super::text;
use super::text::skip_mark;

/// Rows of a text, one in memory at a time.
pub(super) struct Table {
    pub input: Input,
    core: Reader,
    cells: Vec<u8>,
    ends: Vec<usize>,
    columns: usize,
    /// Of the first line of the row.
    line: u64,
    /// Ends of lines that have been passed.
    passed: u64,
    max_bytes: usize,
    max_columns: usize,
}

/// What cells are separated by, as the first row looks: a semicolon or a tab is hardly in a row for another reason, while
/// a comma may be part of a number or a name.
pub(super) fn guess_delimiter(first: &[u8]) -> u8 {
    let mut quoted = false;
    let mut found = b',';
    for &byte in first {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            b'\t' if !quoted => return b'\t',
            b';' if !quoted => found = b';',
            _ => {}
        }
    }
    found
}

impl Table {
    pub fn new(
        mut input: Input,
        delimiter: Option<u8>,
        max_bytes: usize,
        max_columns: usize,
    ) -> Result<Self, ReadError> {
        skip_mark(&mut input)?;
        let delimiter = match delimiter {
            Some(delimiter) => delimiter,
            None => guess_delimiter(input.peek(32 << 10)?),
        };
        let core = ReaderBuilder::new().delimiter(delimiter).build();
        Ok(Self {
            input,
            core,
            cells: vec![0; 4096.min(max_bytes)],
            ends: vec![0; 64.min(max_columns)],
            columns: 0,
            line: 0,
            passed: 0,
            max_bytes,
            max_columns,
        })
    }

    /// Goes to the next row that is not empty. `false` at the end.
    pub fn next(&mut self) -> Result<bool, ReadError> {
        self.columns = 0;
        let (mut written, mut began) = (0, false);
        loop {
            let mut bytes = self.input.fill()?;
            let at_end = bytes.is_empty();
            if !began {
                let skip = bytes.iter().take_while(|&&byte| matches!(byte, b'\r' | b'\n')).count();
                if skip > 0 {
                    self.passed += newlines(&bytes[..skip]);
                    self.input.consume(skip);
                    continue;
                }
                if at_end {
                    return Ok(false);
                }
                self.line = self.passed + 1;
                began = true;
            }
            if at_end {
                // Ends the last row if it has no end of its own, unless a quote is open.
                bytes = b"\n";
            }
            let (result, taken, put, ends) =
                self.core.read_record(bytes, &mut self.cells[written..], &mut self.ends[self.columns..]);
            written += put;
            self.columns += ends;
            if !at_end {
                self.passed += newlines(&bytes[..taken]);
                self.input.consume(taken);
            }
            match result {
                ReadRecordResult::Record => return Ok(true),
                ReadRecordResult::End => return Ok(false),
                ReadRecordResult::InputEmpty if at_end => {
                    return Err(self.wrong("a quote that begins in this row is never closed"));
                }
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.cells.len() < self.max_bytes => {
                    self.cells.resize((2 * self.cells.len()).min(self.max_bytes), 0);
                }
                ReadRecordResult::OutputFull => {
                    return Err(text::too_long(&self.input, self.line, self.max_bytes));
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < self.max_columns => {
                    self.ends.resize((2 * self.ends.len()).min(self.max_columns), 0);
                }
                ReadRecordResult::OutputEndsFull => {
                    return Err(
                        self.wrong(format!("more cells than the limit of {} (`max_columns`)", self.max_columns))
                    );
                }
            }
        }
    }

    /// Cells of this row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The cells of this row, without spaces around them.
    pub fn cells(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends[..self.columns].iter().map(move |&end| {
            let cell = &self.cells[start..end];
            start = end;
            cell.trim_ascii()
        })
    }

    pub fn cell(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.cells[start..self.ends[index]].trim_ascii()
    }

    /// Where this row is.
    pub fn place(&self) -> Place {
        Place::Line(self.line)
    }

    pub fn wrong(&self, problem: impl Into<String>) -> ReadError {
        ReadError::content(&self.input.name, self.place(), problem)
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    // In groups short enough to be counted in bytes, many at a time.
    bytes.chunks(255).map(|group| u64::from(group.iter().fold(0_u8, |sum, &byte| sum + u8::from(byte == b'\n')))).sum()
}
