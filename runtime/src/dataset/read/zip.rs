//! Zip archives, as far as npz needs them: the list of members, and a member as an input.
//!
//! Archives are read where they lie, several members at a time. The list is limited before it is read: crates for zip
//! files keep whatever a directory of gigabytes lists.

use std::io::{self, BufReader, Read};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::error::{Place, ReadError, excerpt};
use super::gzip::Guard;
use super::source::{Input, Opened, Piece};

const END: &[u8] = b"PK\x05\x06";
const END_LENGTH: usize = 22;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_LENGTH: usize = 20;
const END64: &[u8] = b"PK\x06\x06";
const END64_LENGTH: usize = 56;
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_LENGTH: usize = 46;
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";
const LOCAL_LENGTH: usize = 30;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// A file in an archive.
pub(super) struct Member {
    pub name: String,
    method: u16,
    checksum: u32,
    compressed: u64,
    size: u64,
    /// Where its own header begins.
    header: u64,
}

/// Where the list of members is.
struct Directory {
    entries: u64,
    size: u64,
    start: u64,
}

/// The members of an archive. It must not be compressed as a whole.
pub(super) fn members(archive: &Opened) -> Result<Vec<Member>, ReadError> {
    let directory = directory(archive)?;
    let limits = &archive.limits;
    if directory.entries > limits.max_arrays as u64 || directory.size > limits.max_header_bytes as u64 {
        return Err(archive.wrong(format!(
            "its list has {} members in {} bytes; the limits are {} (`max_arrays`) and {} (`max_header_bytes`)",
            directory.entries, directory.size, limits.max_arrays, limits.max_header_bytes
        )));
    }
    let bytes = bytes(archive, directory.start, directory.size, "the list of members")?;
    let mut members: Vec<Member> = Vec::new();
    let mut rest = &bytes[..];
    for _ in 0..directory.entries {
        let at = directory.start + (bytes.len() - rest.len()) as u64;
        let wrong = |problem: String| ReadError::content(&archive.name, Place::Byte(at), problem);
        let (member, length) = entry(rest).map_err(wrong)?;
        if members.iter().any(|other| other.name == member.name) {
            return Err(wrong(format!("a second member `{}`", excerpt(member.name.as_bytes()))));
        }
        members.push(member);
        rest = &rest[length..];
    }
    if rest.is_empty() {
        Ok(members)
    } else {
        Err(archive.wrong("its list of members is longer than the members that it should have"))
    }
}

/// A member, expanded.
pub(super) fn input(archive: &Opened, member: &Member) -> Result<Input, ReadError> {
    let name = format!("{}:{}", archive.name, member.name);
    let header = bytes(archive, member.header, LOCAL_LENGTH as u64, "the header of a member")?;
    let wrong = |problem: &str| ReadError::content(&name, Place::Byte(member.header), problem);
    if !header.starts_with(MAGIC) {
        return Err(wrong("the list of members points to what is no member"));
    }
    let start = member.header + LOCAL_LENGTH as u64 + u64::from(half(&header, 26)) + u64::from(half(&header, 28));
    if start.checked_add(member.compressed).is_none_or(|end| end > archive.length()) {
        return Err(wrong("the member is longer than the archive"));
    }
    Guard::new(&archive.limits).check(member.size, member.compressed).map_err(|cause| wrong(&cause.to_string()))?;
    let piece = archive.piece(start, member.compressed);
    let content: Box<dyn Read + Send> = match member.method {
        STORED => Box::new(piece),
        _ => Box::new(DeflateDecoder::new(BufReader::<Piece>::with_capacity(32 << 10, piece))),
    };
    let checked = Checked { content, checksum: Crc::new(), count: 0, size: member.size, expected: member.checksum };
    Ok(Input::new(name, Box::new(checked), Some(member.size), true))
}

fn directory(archive: &Opened) -> Result<Directory, ReadError> {
    let length = archive.length();
    let tail_length = length.min((END_LENGTH + LOCATOR_LENGTH + usize::from(u16::MAX)) as u64);
    let tail_start = length - tail_length;
    let tail = bytes(archive, tail_start, tail_length, "the end of the archive")?;
    // After the end may stand a comment, whose length is the last of the end.
    let found = (0..(tail.len() + 1).saturating_sub(END_LENGTH))
        .rev()
        .find(|&at| tail[at..].starts_with(END) && usize::from(half(&tail, at + 20)) == tail.len() - at - END_LENGTH);
    let Some(at) = found else {
        return Err(archive.wrong("no zip archive, or its end is missing: it may be truncated"));
    };
    let mut directory = Directory {
        entries: half(&tail, at + 10).into(),
        size: word(&tail, at + 12).into(),
        start: word(&tail, at + 16).into(),
    };
    let mut end = tail_start + at as u64;
    if let Some(locator) = at.checked_sub(LOCATOR_LENGTH).filter(|&at| tail[at..].starts_with(LOCATOR)) {
        end = long(&tail, locator + 8);
        let large = bytes(archive, end, END64_LENGTH as u64, "the end of the archive")?;
        if !large.starts_with(END64) {
            return Err(archive.wrong("the end of the archive points to what is no end"));
        }
        directory = Directory { entries: long(&large, 32), size: long(&large, 40), start: long(&large, 48) };
    }
    if directory.start.checked_add(directory.size).is_none_or(|after| after > end) {
        return Err(archive.wrong("its list of members would lie beyond its end"));
    }
    Ok(directory)
}

/// The member that the list begins with, and how long its entry is.
fn entry(bytes: &[u8]) -> Result<(Member, usize), String> {
    if !bytes.starts_with(ENTRY) || bytes.len() < ENTRY_LENGTH {
        return Err("the list of members is damaged".into());
    }
    let (name_length, extra_length) = (usize::from(half(bytes, 28)), usize::from(half(bytes, 30)));
    let extra_start = ENTRY_LENGTH + name_length;
    let length = extra_start + extra_length + usize::from(half(bytes, 32));
    if length > bytes.len() {
        return Err("the list of members is damaged: an entry is longer than the list".into());
    }
    let Ok(name) = std::str::from_utf8(&bytes[ENTRY_LENGTH..extra_start]) else {
        return Err("a member whose name is no UTF-8".into());
    };
    let (flags, method) = (half(bytes, 8), half(bytes, 10));
    let shown = excerpt(name.as_bytes());
    if flags & 1 != 0 {
        return Err(format!("the member `{shown}` is encrypted"));
    }
    if method != STORED && method != DEFLATED {
        return Err(format!("the member `{shown}` is compressed with method {method}; only deflate is understood"));
    }
    let mut member = Member {
        name: name.into(),
        method,
        checksum: word(bytes, 16),
        compressed: word(bytes, 20).into(),
        size: word(bytes, 24).into(),
        header: word(bytes, 42).into(),
    };
    let extra = &bytes[extra_start..extra_start + extra_length];
    large_sizes(&mut member, extra).ok_or_else(|| format!("the member `{shown}` has damaged zip64 sizes"))?;
    if method == STORED && member.size != member.compressed {
        return Err(format!("the member `{shown}` is stored and yet has two sizes"));
    }
    Ok((member, length))
}

/// Sizes that do not fit 32 bits stand behind the name, those only, in this order.
fn large_sizes(member: &mut Member, mut extra: &[u8]) -> Option<()> {
    let large = u64::from(u32::MAX);
    if member.size < large && member.compressed < large && member.header < large {
        return Some(());
    }
    loop {
        let (kind, length) = (extra.get(..2)?, usize::from(half(extra.get(..4)?, 2)));
        let mut fields = extra.get(4..4 + length)?;
        extra = &extra[4 + length..];
        if kind != [1, 0] {
            continue;
        }
        for value in [&mut member.size, &mut member.compressed, &mut member.header] {
            if *value == large {
                *value = long(fields.get(..8)?, 0);
                fields = &fields[8..];
            }
        }
        return Some(());
    }
}

fn bytes(archive: &Opened, start: u64, length: u64, what: &str) -> Result<Vec<u8>, ReadError> {
    if start.checked_add(length).is_none_or(|end| end > archive.length()) {
        return Err(archive.wrong(format!("{what} would lie beyond the end of the file, at byte {start}")));
    }
    let mut bytes = Vec::new();
    archive.piece(start, length).read_to_end(&mut bytes).map_err(|cause| ReadError::io(&archive.name, cause))?;
    // Only where the file was cut meanwhile; those who read fields count on the length.
    bytes.resize(length as usize, 0);
    Ok(bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |field| u16::from_le_bytes([field[0], field[1]]))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Compares what a member expands to with its size and its checksum.
struct Checked {
    content: Box<dyn Read + Send>,
    checksum: Crc,
    count: u64,
    size: u64,
    expected: u32,
}

impl Read for Checked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wrong = |problem| Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        let count = self.content.read(into)?;
        self.checksum.update(&into[..count]);
        self.count += count as u64;
        if self.count > self.size {
            return wrong("the member expands to more than the archive says");
        }
        if count == 0 && !into.is_empty() {
            if self.count < self.size {
                return wrong("the member expands to less than the archive says");
            }
            if self.checksum.sum() != self.expected {
                return wrong("the checksum of the member is wrong: the file is damaged");
            }
        }
        Ok(count)
    }
}
