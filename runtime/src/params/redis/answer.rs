//! What a script says.

use ::redis::Value as Reply;

use super::head;
use crate::params::{Form, Key, ParamError};

pub enum Answer {
    Done {
        incarnation: String,
        parts: Vec<Reply>,
    },
    Lost,
    Ended,
    Ending,
    Claims,
    /// Too many answers are kept for the tenant.
    Answers,
    Late,
    Limit,
    Fenced {
        newest: u64,
    },
    Conflict {
        key: Key,
        found: Option<u64>,
    },
    Form {
        key: Key,
        found: Form,
    },
    Overflow {
        key: Key,
    },
}

impl Answer {
    pub fn read(reply: Reply) -> Result<Self, ParamError> {
        let mut parts = list(reply)?.into_iter();
        let mut next = || parts.next().unwrap_or(Reply::Nil);
        let answer = match text(next())?.as_str() {
            "ok" => Self::Done { incarnation: text(next())?, parts: parts.collect() },
            "lost" => Self::Lost,
            "ended" => Self::Ended,
            "ending" => Self::Ending,
            "claims" => Self::Claims,
            "answers" => Self::Answers,
            "late" => Self::Late,
            "limit" => Self::Limit,
            "fenced" => Self::Fenced { newest: number(next())? },
            "conflict" => Self::Conflict { key: key(next())?, found: text(next())?.parse().ok() },
            "form" => Self::Form { key: key(next())?, found: head::form(&bytes(next())?)? },
            "overflow" => Self::Overflow { key: key(next())? },
            other => return Err(ParamError::Damaged(format!("a script answered `{other}`"))),
        };
        Ok(answer)
    }

    /// What a script has to say beyond that it is done.
    pub fn done(self) -> Result<Vec<Reply>, ParamError> {
        match self {
            Self::Done { parts, .. } => Ok(parts),
            _ => Err(ParamError::Damaged("a script refused what it cannot refuse".to_owned())),
        }
    }

    pub fn one_number(self) -> Result<u64, ParamError> {
        number(self.done()?.into_iter().next().unwrap_or(Reply::Nil))
    }
}

fn unexpected(reply: &Reply) -> ParamError {
    let text: String = format!("{reply:?}").chars().take(80).collect();
    ParamError::Damaged(format!("a server answered {text}"))
}

pub fn list(reply: Reply) -> Result<Vec<Reply>, ParamError> {
    match reply {
        Reply::Array(parts) => Ok(parts),
        other => Err(unexpected(&other)),
    }
}

pub fn bytes(reply: Reply) -> Result<Vec<u8>, ParamError> {
    match reply {
        Reply::BulkString(bytes) => Ok(bytes),
        Reply::SimpleString(text) => Ok(text.into_bytes()),
        other => Err(unexpected(&other)),
    }
}

pub fn text(reply: Reply) -> Result<String, ParamError> {
    String::from_utf8(bytes(reply)?).map_err(|_| ParamError::Damaged("a server answered no text".to_owned()))
}

pub fn texts(reply: Reply) -> Result<Vec<String>, ParamError> {
    list(reply)?.into_iter().map(text).collect()
}

pub fn number(reply: Reply) -> Result<u64, ParamError> {
    match reply {
        Reply::Int(number) => u64::try_from(number).map_err(|_| unexpected(&reply)),
        other => text(other)?.parse().map_err(|_| ParamError::Damaged("a server answered no number".to_owned())),
    }
}

pub fn key(reply: Reply) -> Result<Key, ParamError> {
    let text = text(reply)?;
    Key::stored(&text).map_err(|error| ParamError::Damaged(error.to_string()))
}
