//! libsvm, also called svmlight: lines of a label and `index:value` pairs, which become rows of a CSR matrix.
//!
//! A file is read twice: whether the first index is 0 or 1, how many columns there are, and what the labels are, is known
//! only after the last line.

use super::error::{ReadError, excerpt};
use super::labels::{CHANGED, LabelKind, Meaning, Tally};
use super::source::Opened;
use super::text::{Lines, number, wide_number};
use super::{Options, Samples};
use crate::dataset::rows::{Features, Labels, Rows, Values};

/// Numbers after which no more lines are read at once.
const NUMBERS_AT_ONCE: usize = 256 << 10;

pub(super) struct LibSvm {
    lines: Lines,
    features: Features,
    meaning: Meaning,
    /// What the first index is.
    base: u32,
    count: u64,
    /// The index after the last that there may be.
    end: u64,
}

impl LibSvm {
    pub fn open(file: &Opened, options: &Options) -> Result<Self, ReadError> {
        if options.labels == LabelKind::Names {
            return Err(file.wrong("labels of a libsvm file are numbers and have no names"));
        }
        if let Some(base) = options.index_base.filter(|&base| base > 1) {
            return Err(ReadError::Asked(format!("indices begin with 0 or 1, not with {base}")));
        }
        let lines = || Lines::new(file.input(), file.limits.max_line_bytes);
        let mut survey = lines()?;
        let most = u64::from(file.limits.max_sparse_columns);
        let mut tally = Tally::new(options.labels, true);
        let (mut count, mut lowest, mut highest) = (0, None, None);
        while let Some(line) = survey.next()? {
            let parsed = parse(line, |index, _| {
                lowest = Some(lowest.map_or(index, |lowest: u64| lowest.min(index)));
                highest = Some(highest.map_or(index, |highest: u64| highest.max(index)));
                // The one more is the first index, if that is 1.
                if index > most {
                    Err(format!("the index {index} is over the limit of {most} (`max_sparse_columns`)"))
                } else {
                    Ok(())
                }
            });
            let parsed = parsed.map(|label| label.map(<[u8]>::to_vec));
            let Some(label) = parsed.map_err(|problem| survey.wrong(problem))? else { continue };
            let value = label_value(&label).map_err(|problem| survey.wrong(problem))?;
            let whole = std::str::from_utf8(&label).is_ok_and(|text| text.parse::<i64>().is_ok());
            tally
                .add(survey.place(), value, whole)
                .map_err(|(place, problem)| ReadError::content(&survey.input.name, place, problem))?;
            count += 1;
        }
        if count == 0 {
            return Err(survey.input.wrong("the file has no samples"));
        }
        let meaning =
            tally.decide(1).map_err(|(place, problem)| ReadError::content(&survey.input.name, place, problem))?;
        let base = options.index_base.unwrap_or(u32::from(lowest != Some(0)));
        let needed = highest.map_or(0, |highest| (highest + 1).saturating_sub(base.into()));
        let columns = match options.columns {
            Some(columns) if columns > file.limits.max_sparse_columns => {
                return Err(ReadError::Asked(format!(
                    "{columns} columns are over the limit of {most} (`max_sparse_columns`)"
                )));
            }
            Some(columns) => columns,
            None => u32::try_from(needed)
                .ok()
                .filter(|&columns| columns > 0 && u64::from(columns) <= most)
                .ok_or_else(|| {
                    survey.input.wrong(format!(
                        "the file has {needed} columns; there must be from 1 to {most} (`max_sparse_columns`)"
                    ))
                })?,
        };
        let end = u64::from(columns) + u64::from(base);
        Ok(Self { lines: lines()?, features: Features::Sparse { columns }, meaning, base, count, end })
    }
}

impl Samples for LibSvm {
    fn features(&self) -> &Features {
        &self.features
    }

    fn labels(&self) -> Option<Labels> {
        Some(self.meaning.labels())
    }

    fn count(&self) -> Option<u64> {
        Some(self.count)
    }

    fn index_base(&self) -> Option<u32> {
        Some(self.base)
    }

    fn read(&mut self, most: usize, into: &mut Rows) -> Result<usize, ReadError> {
        let Values::Sparse { starts, columns, values } = &mut into.features else { return Err(super::mixed()) };
        let (base, end) = (u64::from(self.base), self.end);
        let enough = columns.len().saturating_add(NUMBERS_AT_ONCE);
        let mut count = 0;
        while count < most && columns.len() < enough {
            let Some(line) = self.lines.next()? else { return Ok(count) };
            let parsed = parse(line, |index, text| {
                if index < base || index >= end {
                    return Err(format!("the index {index}: indices are from {base} to {}", end - 1));
                }
                let value = number(text).filter(|value| value.is_finite());
                let Some(value) = value else {
                    return Err(format!("the value `{}` of index {index} is not a finite number", excerpt(text)));
                };
                columns.push((index - base) as u32);
                values.push(value);
                Ok(())
            });
            let label = match parsed {
                Ok(Some(label)) => wide_number(label).and_then(|value| self.meaning.encode(value)),
                Ok(None) => continue,
                Err(problem) => return Err(self.lines.wrong(problem)),
            };
            into.labels.extend_from_slice(&label.ok_or_else(|| self.lines.wrong(CHANGED))?);
            let Ok(start) = u32::try_from(columns.len()) else {
                return Err(ReadError::Asked("more than 4,294,967,295 numbers at once".into()));
            };
            starts.push(start);
            count += 1;
        }
        Ok(count)
    }
}

/// Calls `pair` for each index and the text of its value, in ascending order; gives the text of the label. `None` for an
/// empty line.
fn parse(line: &[u8], mut pair: impl FnMut(u64, &[u8]) -> Result<(), String>) -> Result<Option<&[u8]>, String> {
    let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(label) = words.next() else { return Ok(None) };
    let mut last = None;
    for word in words {
        let Some(colon) = word.iter().position(|&byte| byte == b':') else {
            return Err(format!("`{}` is no `index:value`", excerpt(word)));
        };
        let (index, value) = (&word[..colon], &word[colon + 1..]);
        if index == b"qid" {
            return Err("`qid:` is for ranking, which data sets do not have; remove it".into());
        }
        let Some(index) = whole(index) else {
            return Err(format!("the index in `{}` is no whole number below 4,294,967,296", excerpt(word)));
        };
        if last.is_some_and(|last| last >= index) {
            return Err(format!("the index {index} is not higher than the one before it"));
        }
        last = Some(index);
        pair(index, value)?;
    }
    Ok(Some(label))
}

fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 10 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    (value <= u32::MAX.into()).then_some(value)
}

fn label_value(text: &[u8]) -> Result<f64, String> {
    wide_number(text).ok_or_else(|| {
        let shown = excerpt(text);
        if text.contains(&b':') {
            format!("the line begins with `{shown}` and not with a label")
        } else if text.contains(&b',') {
            format!("the label `{shown}`: samples with several labels are not understood")
        } else {
            format!("the label `{shown}` is not a number")
        }
    })
}
