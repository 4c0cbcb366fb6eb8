//! npy, numpy's own format: a magic, a version, a header that is a Python dictionary, the numbers.

use super::array::{Array, Header, Number};
use super::error::{ReadError, excerpt};
use super::source::{Input, Limits};

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// More dimensions than numpy has.
const MAX_DIMENSIONS: usize = 64;

pub(super) fn open(mut input: Input, limits: &Limits) -> Result<Array, ReadError> {
    let mut magic = [0; 8];
    input.exact(&mut magic, "the header")?;
    if !magic.starts_with(MAGIC) {
        return Err(input.wrong_at(0, "no npy file: it does not begin with `\\x93NUMPY`"));
    }
    let major = magic[6];
    let length = match major {
        1 => {
            let mut length = [0; 2];
            input.exact(&mut length, "the header")?;
            u16::from_le_bytes(length).into()
        }
        2 | 3 => {
            let mut length = [0; 4];
            input.exact(&mut length, "the header")?;
            u32::from_le_bytes(length) as usize
        }
        _ => return Err(input.wrong_at(6, format!("version {major} of npy is unknown; 1, 2 and 3 are understood"))),
    };
    let start = input.offset();
    if length > limits.max_header_bytes || input.left().is_some_and(|left| length as u64 > left) {
        return Err(input.wrong_at(
            8,
            format!("the header claims to have {length} bytes: more than the file, or than the limit of {} (`max_header_bytes`)", limits.max_header_bytes),
        ));
    }
    let mut text = Vec::new();
    input.append(length, &mut text, "the header")?;
    let mut dictionary = Dictionary { text: &text, at: 0 };
    let header = dictionary.header().and_then(|raw| meaning(&raw));
    match header {
        Ok(header) => Array::new(input, header, limits),
        Err(problem) => Err(input.wrong_at(start + dictionary.at.min(text.len()) as u64, problem)),
    }
}

/// The three entries of the header as they stand there.
struct Raw {
    descr: Vec<u8>,
    fortran_order: bool,
    shape: Vec<u64>,
}

fn meaning(raw: &Raw) -> Result<Header, String> {
    let (order, kind) = match raw.descr.split_first() {
        Some((order @ (b'<' | b'>' | b'|' | b'='), kind)) => (*order, kind),
        _ => (b'<', &raw.descr[..]),
    };
    let number = match kind {
        b"b1" | b"?" => Number::Bool,
        b"u1" => Number::U8,
        b"i1" => Number::I8,
        b"u2" => Number::U16,
        b"i2" => Number::I16,
        b"u4" => Number::U32,
        b"i4" => Number::I32,
        b"u8" => Number::U64,
        b"i8" => Number::I64,
        b"f2" => Number::F16,
        b"f4" => Number::F32,
        b"f8" => Number::F64,
        _ => {
            let shown = excerpt(&raw.descr);
            return Err(format!("numbers of type `{shown}` are not understood; in numpy: `x.astype('float32')`"));
        }
    };
    if raw.fortran_order && raw.shape.len() > 1 {
        return Err("the array is in Fortran order; save it with `numpy.save(file, numpy.ascontiguousarray(x))`".into());
    }
    Ok(Header { number, big_endian: order == b'>', shape: raw.shape.clone() })
}

/// Reads the one kind of Python dictionary that there can be.
struct Dictionary<'a> {
    text: &'a [u8],
    at: usize,
}

impl Dictionary<'_> {
    fn header(&mut self) -> Result<Raw, String> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while self.next() != Some(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            match key.as_slice() {
                b"descr" if self.next() == Some(b'[') => {
                    return Err("a structured array; save its columns as one array of numbers".into());
                }
                b"descr" => descr = Some(self.string()?),
                b"fortran_order" => fortran_order = Some(self.truth()?),
                b"shape" => shape = Some(self.tuple()?),
                _ => return Err(format!("the header has an entry `{}` that npy does not have", excerpt(&key))),
            }
            if self.next() == Some(b',') {
                self.at += 1;
            } else if self.next() != Some(b'}') {
                return Err("the header is no dictionary as numpy writes it".into());
            }
        }
        self.at += 1;
        if self.next().is_some() {
            return Err("the header goes on after its end".into());
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Raw { descr, fortran_order, shape }),
            _ => Err("the header lacks one of `descr`, `fortran_order` and `shape`".into()),
        }
    }

    /// The next character that is no space.
    fn next(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, character: u8) -> Result<(), String> {
        if self.next() != Some(character) {
            return Err(format!("the header is no dictionary as numpy writes it: `{}` expected", character as char));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<Vec<u8>, String> {
        let quote = self.next().filter(|quote| matches!(quote, b'\'' | b'"'));
        let start = self.at + 1;
        let length = quote.and_then(|quote| self.text.get(start..)?.iter().position(|&byte| byte == quote));
        let Some(length) = length else {
            return Err("the header is no dictionary as numpy writes it: a string expected".into());
        };
        self.at = start + length + 1;
        Ok(self.text[start..start + length].to_vec())
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.next();
        for (word, truth) in [(&b"True"[..], true), (&b"False"[..], false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(truth);
            }
        }
        Err("`fortran_order` is neither True nor False".into())
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while self.next() != Some(b')') {
            shape.push(self.whole()?);
            if shape.len() > MAX_DIMENSIONS {
                return Err(format!("more than {MAX_DIMENSIONS} dimensions"));
            }
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b')') => {}
                _ => return Err("`shape` is no tuple of whole numbers".into()),
            }
        }
        self.at += 1;
        Ok(shape)
    }

    fn whole(&mut self) -> Result<u64, String> {
        self.next();
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&self.text[self.at..self.at + digits]).ok().and_then(|text| text.parse().ok());
        let Some(number) = number else {
            return Err("`shape` has a size that is no whole number, or too large".into());
        };
        self.at += digits;
        // As Python 2 wrote it.
        if self.text.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        Ok(number)
    }
}
