//! A connection to a node, byte by byte: for clients that are slow, broken, or do not know HTTP.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ureq::http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::{Answer, Client};

/// No read waits for longer, so that a node that neither answers nor closes fails a test instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(20);

/// An open connection.
pub struct Wire {
    stream: BufReader<TcpStream>,
    /// The node, as the client calls it.
    host: String,
    /// What the client would say of itself.
    authorization: String,
}

impl Wire {
    pub fn connect(client: &Client) -> Result<Self> {
        let (_, address) = client.url().split_once("://").context("no address")?;
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let authorization = client.key().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        Ok(Self { stream: BufReader::new(stream), host: address.to_owned(), authorization })
    }

    /// Exactly these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes.as_ref())?)
    }

    /// A request's head, without the empty line that ends it. `headers` are lines.
    pub fn head(&mut self, method: &str, path: &str, headers: &[&str]) -> Result<()> {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n{}{lines}", self.host, self.authorization);
        self.send(head)
    }

    /// Says that nothing more will be sent, and goes on listening.
    pub fn half_close(&mut self) -> Result<()> {
        Ok(self.stream.get_ref().shutdown(std::net::Shutdown::Write)?)
    }

    /// A whole request.
    pub fn request(&mut self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Result<()> {
        let length = format!("content-length: {}", body.len());
        self.head(method, path, &[headers, &[&length]].concat())?;
        self.send([b"\r\n", body].concat())
    }

    /// Sends the bytes one by one, with a pause after each, until all are sent or the node has closed or answered.
    pub fn drip(&mut self, bytes: &[u8], pause: Duration) -> Result<()> {
        self.stream.get_ref().set_read_timeout(Some(pause))?;
        for byte in bytes {
            if self.send([*byte]).is_err() || self.has_something_to_read()? {
                break;
            }
        }
        Ok(self.stream.get_ref().set_read_timeout(Some(PATIENCE))?)
    }

    /// Whether the node says nothing and does not close for as long as this.
    pub fn is_silent_for(&mut self, time: Duration) -> Result<bool> {
        self.stream.get_ref().set_read_timeout(Some(time))?;
        let spoke = self.has_something_to_read()?;
        self.stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        Ok(!spoke)
    }

    fn has_something_to_read(&mut self) -> Result<bool> {
        match self.stream.fill_buf() {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The next answer, whose length the node must have said.
    pub fn answer(&mut self) -> Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).with_context(|| format!("no status in `{status}`"))?.parse()?;
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').with_context(|| format!("`{line}` is no header"))?;
            headers.insert(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value.trim())?);
        }
        if status == 100 {
            return self.answer();
        }
        let length: usize = match headers.get("content-length") {
            Some(length) => length.to_str()?.parse()?,
            None => bail!("an answer of no known length: {status} {headers:?}"),
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, headers, body })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(line.ends_with("\r\n"), "the node closed after `{line}`");
        Ok(line.trim_end().to_owned())
    }

    /// What the node still sends, until it closes the connection; an error if it does not within `at_most`.
    pub fn until_closed(&mut self, at_most: Duration) -> Result<Vec<u8>> {
        let start = Instant::now();
        let mut rest = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let left = at_most.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
            let left = left.with_context(|| format!("the connection is still open after {at_most:?}"))?;
            self.stream.get_ref().set_read_timeout(Some(left))?;
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(rest),
                Ok(count) => rest.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(rest),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
