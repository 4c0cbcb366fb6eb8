//! A request that is sent and not waited for: what a client does that goes away.

use std::io::Write;
use std::net::TcpStream;

use anyhow::{Context, Result};

use crate::http::Client;

/// A request in flight. Dropping it closes the connection before the answer has come.
pub struct Held {
    _connection: TcpStream,
}

impl Held {
    /// Invokes a function and leaves it at that.
    pub fn invoke(client: &Client, function: &str, body: &str) -> Result<Self> {
        Self::send(client, "POST", &format!("/v1/functions/{function}/invoke"), body)
    }

    /// Asks for something, and never reads it.
    pub fn get(client: &Client, path: &str) -> Result<Self> {
        Self::send(client, "GET", path, "")
    }

    fn send(client: &Client, method: &str, path: &str, body: &str) -> Result<Self> {
        let address = client.url().strip_prefix("http://").context("not a plain HTTP address")?;
        let mut connection = TcpStream::connect(address)?;
        let key = client.key().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let length = body.len();
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{key}content-length: {length}\r\n\r\n{body}"
        )?;
        Ok(Self { _connection: connection })
    }

    /// Several of them at once.
    pub fn invoke_all(client: &Client, function: &str, body: &str, count: usize) -> Result<Vec<Self>> {
        (0..count).map(|_| Self::invoke(client, function, body)).collect()
    }
}
