//! Heads: what a server keeps of a value in the tenant's slot.

use ::redis::Value as Reply;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::answer::{bytes, key, list, number, text};
use super::chunks::{self, Chunks, Sent};
use crate::params::{Changed, Entry, Form, Head, Key, Moment, ParamError, Value};

/// What only clients read, in MessagePack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub form: Form,
    pub bytes: u64,
    /// Of the bytes in the head, or of each chunk.
    pub checksums: Vec<u32>,
}

/// A head as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHead {
    version: u64,
    expires: Option<Moment>,
    pub frame: Frame,
    pub chunks: Option<Chunks>,
    count: Option<i64>,
    inline: Bytes,
}

fn damaged(what: &str) -> ParamError {
    ParamError::Damaged(format!("a head with {what}"))
}

/// The frame's length, and the frame with the bytes that are not in chunks.
pub fn body(value: &Value, sent: Option<&Sent>) -> Result<(u64, Bytes), ParamError> {
    let checksums = match sent {
        Some(sent) => sent.checksums.clone(),
        None => vec![crc32fast::hash(&value.data)],
    };
    let is_apart = sent.is_some() || value.form == Form::Counter;
    let frame = Frame { form: value.form.clone(), bytes: value.data.len() as u64, checksums };
    let mut body = rmp_serde::to_vec(&frame).map_err(|error| damaged(&error.to_string()))?;
    let length = body.len() as u64;
    if !is_apart {
        body.extend_from_slice(&value.data);
    }
    Ok((length, body.into()))
}

fn read_frame(bytes: &[u8]) -> Result<Frame, ParamError> {
    let frame: Frame = rmp_serde::from_slice(bytes).map_err(|error| damaged(&error.to_string()))?;
    Ok(Frame { form: frame.form.stored(), ..frame })
}

/// What the frame says the value is.
pub fn form(frame: &[u8]) -> Result<Form, ParamError> {
    Ok(read_frame(frame)?.form)
}

impl StoredHead {
    fn read(count: Reply, head: Reply) -> Result<Self, ParamError> {
        Self::parse(&text(count)?, bytes(head)?.into())
    }

    /// From a counter's number, which is another text for all other values, and the bytes of a head.
    pub fn parse(count: &str, head: Bytes) -> Result<Self, ParamError> {
        let end = head.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged("no line"))?;
        let line = std::str::from_utf8(&head[..end]).map_err(|_| damaged("no line"))?;
        let words: Vec<&str> = line.split(' ').collect();
        let &[version, expires, _, reference, chunks, _, frame] = &words[..] else {
            return Err(damaged("another line"));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| damaged("no number"));
        let body = head.slice(end + 1..);
        let frame_bytes = usize::try_from(number(frame)?).unwrap_or(usize::MAX);
        let frame = read_frame(body.get(..frame_bytes).ok_or_else(|| damaged("a short frame"))?)?;
        let (chunks, is_chunked) = (number(chunks)?, reference != "-");
        if is_chunked && (chunks != chunks::count(frame.bytes) || frame.checksums.len() as u64 != chunks) {
            return Err(damaged("another number of chunks"));
        }
        Ok(Self {
            version: number(version)?,
            expires: Some(number(expires)?).filter(|&moment| moment != 0).map(Moment),
            chunks: is_chunked.then(|| Chunks { reference: reference.to_owned(), checksums: frame.checksums.clone() }),
            count: count.parse().ok(),
            inline: body.slice(frame_bytes..),
            frame,
        })
    }

    /// From a pair of a counter's number and a head, or nothing.
    pub fn read_optional(reply: Reply) -> Result<Option<Self>, ParamError> {
        match reply {
            Reply::Nil | Reply::Boolean(false) => Ok(None),
            pair => match <[Reply; 2]>::try_from(list(pair)?) {
                Ok([count, head]) => Self::read(count, head).map(Some),
                Err(_) => Err(damaged("too many parts")),
            },
        }
    }

    pub fn head(&self) -> Head {
        let Self { version, expires, frame, .. } = self;
        Head { version: *version, form: frame.form.clone(), bytes: frame.bytes, expires: *expires }
    }

    /// Whether the bytes are in the head and did not come with it.
    pub fn lacks_bytes(&self) -> bool {
        self.chunks.is_none() && self.frame.form != Form::Counter && self.inline.is_empty() && self.frame.bytes > 0
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// The bytes of a value that has no chunks.
    pub fn inline(&self) -> Result<Bytes, ParamError> {
        if self.frame.form == Form::Counter {
            let count = self.count.ok_or_else(|| damaged("a counter without a number"))?;
            return Ok(Bytes::copy_from_slice(&count.to_le_bytes()));
        }
        if self.frame.checksums != [crc32fast::hash(&self.inline)] || self.inline.len() as u64 != self.frame.bytes {
            return Err(damaged("other bytes than were written"));
        }
        Ok(self.inline.clone())
    }

    pub fn entry(self, data: Bytes) -> Result<Entry, ParamError> {
        let value = Value { form: self.frame.form, data }.checked().map_err(|error| damaged(&error.to_string()))?;
        Ok(Entry { version: self.version, value, expires: self.expires })
    }
}

/// A name with its head.
pub fn read_listed(reply: Reply) -> Result<(Key, Head), ParamError> {
    match <[Reply; 3]>::try_from(list(reply)?) {
        Ok([name, count, head]) => Ok((key(name)?, StoredHead::read(count, head)?.head())),
        Err(_) => Err(damaged("too few parts")),
    }
}

/// What a change did. The head that a count left comes with it.
pub fn read_changed(reply: Reply) -> Result<Changed, ParamError> {
    let Ok([version, found, head]) = <[Reply; 3]>::try_from(list(reply)?) else {
        return Err(damaged("another number of parts"));
    };
    let entry = match StoredHead::read_optional(head)? {
        Some(head) => {
            let data = head.inline()?;
            Some(head.entry(data)?)
        }
        None => None,
    };
    Ok(Changed { version: number(version)?, found: number(found)? != 0, entry })
}
