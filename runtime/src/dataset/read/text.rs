//! Lines of text, and numbers in them.

use super::error::{Place, ReadError};
use super::source::Input;

/// Skips what some editors put before the first character.
pub(super) fn skip_mark(input: &mut Input) -> Result<(), ReadError> {
    let first = input.peek(3)?;
    if first.starts_with(&[0xff, 0xfe]) || first.starts_with(&[0xfe, 0xff]) {
        return Err(input.wrong("the text is UTF-16; save it as UTF-8"));
    }
    if first.starts_with(&[0xef, 0xbb, 0xbf]) {
        input.consume(3);
    }
    Ok(())
}

/// The lines of a text, no longer than a limit.
pub(super) struct Lines {
    pub input: Input,
    line: Vec<u8>,
    number: u64,
    most: usize,
}

impl Lines {
    pub fn new(mut input: Input, most: usize) -> Result<Self, ReadError> {
        skip_mark(&mut input)?;
        Ok(Self { input, line: Vec::new(), number: 0, most })
    }

    /// Where the line is that was read last.
    pub fn place(&self) -> Place {
        Place::Line(self.number)
    }

    pub fn wrong(&self, problem: impl Into<String>) -> ReadError {
        ReadError::content(&self.input.name, self.place(), problem)
    }

    /// The next line without its end.
    pub fn next(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.line.clear();
        self.number += 1;
        loop {
            let bytes = self.input.fill()?;
            if bytes.is_empty() {
                return Ok((!self.line.is_empty()).then_some(&self.line));
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let count = end.unwrap_or(bytes.len());
            if self.line.len() + count > self.most {
                return Err(too_long(&self.input, self.number, self.most));
            }
            self.line.extend_from_slice(&bytes[..count]);
            self.input.consume(count + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(Some(&self.line));
            }
        }
    }
}

pub(super) fn too_long(input: &Input, line: u64, most: usize) -> ReadError {
    let problem = format!("longer than the limit of {most} bytes (`max_line_bytes`)");
    ReadError::content(&input.name, Place::Line(line), problem)
}

/// A number, NaN and infinity too.
pub(super) fn number(text: &[u8]) -> Option<f32> {
    short(text).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

/// A number, NaN and infinity too, to the precision that labels are looked at.
pub(super) fn wide_number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Numbers such as `-12.375`: where digits and power of ten both are exact as f32, so is their quotient but for one
/// rounding. Most cells are like this, and it takes a third of the time.
fn short(text: &[u8]) -> Option<f32> {
    const TENS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 12 {
        return None;
    }
    let (mut mantissa, mut point) = (0_u64, None);
    for (index, &byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(index),
            _ => return None,
        }
    }
    let decimals = point.map_or(0, |point| digits.len() - 1 - point);
    if mantissa > 1 << 24 || decimals >= TENS.len() || (point.is_some() && digits.len() == 1) {
        return None;
    }
    let value = mantissa as f32 / TENS[decimals];
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_the_standard_library_reads() {
        let mut texts: Vec<String> =
            ["0", "-0", "1", "+1", "1e3", ".5", "5.", "-.5", "007", "16777216", "16777217", "1e-45"]
                .map(String::from)
                .to_vec();
        for mantissa in (0..17_000_000_u64).step_by(99_991) {
            for decimals in 0..8 {
                texts.push(format!("{}.{:0decimals$}", mantissa >> decimals, mantissa % 10_u64.pow(decimals as u32)));
            }
        }
        for text in texts {
            let expected: f32 = text.parse().unwrap();
            assert_eq!(number(text.as_bytes()).map(f32::to_bits), Some(expected.to_bits()), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", ".", "-", "1.2.3", "1,5", "0x10", "abc", "1 2", "--1", "é"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
