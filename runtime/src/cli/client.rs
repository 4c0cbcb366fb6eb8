//! A client of a node's API: one connection pool, one key, typed calls.
//!
//! The calls themselves are in `client/calls.rs`. Redirects are never followed, so that a key goes only to the node it
//! was given for.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Proxy};

use crate::api::problem::TYPE_PREFIX;
use crate::api::types::Problem;

mod calls;

pub use calls::{Invocation, Invoked};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bodies from this size on are only sent once the node has said that it wants them. Otherwise a refusal would be lost
/// with the connection that it closes.
const EXPECT_FROM: usize = 64 << 10;
/// How much of an error's text is read.
const MAX_PROBLEM: u64 = 1 << 20;

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{0}` is not the url of a node: write `http://HOST:PORT` or `https://HOST:PORT`")]
    Url(String),
    #[error("the key has characters that no key has")]
    Key,
    #[error("CA certificate `{}`: {reason}", path.display())]
    Certificate { path: PathBuf, reason: String },
    #[error("cannot reach a node at {url}: {reason}")]
    Unreachable { url: String, reason: String, refused: bool },
    #[error("no answer from {url} in time")]
    Timeout { url: String },
    #[error("the answer ended before it was whole: {0}")]
    Cut(String),
    /// A node that reads a body and then finds it too large hangs up, and its reason is lost with the connection.
    #[error("{url} hung up before it had the whole request: {reason}; is the body larger than the node takes?")]
    HungUp { url: String, reason: String },
    /// The node said no.
    #[error("{}", if problem.detail.is_empty() { &problem.title } else { &problem.detail })]
    Problem { problem: Box<Problem>, path: String },
    #[error("{url} answered with status {status}, but not as a weft node does")]
    Foreign { url: String, status: u16 },
}

/// How long to wait.
#[derive(Clone, Copy)]
enum Wait {
    /// For the whole answer.
    Whole(Duration),
    /// For the next bytes.
    EachRead(Duration),
    /// However long it takes.
    Forever,
}

/// One request.
struct Ask<'a> {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<&'a [u8]>,
    wait: Wait,
}

/// A streamed answer. Reading fails if the answer ends early.
pub type Body = ureq::BodyReader<'static>;

/// A node, and the key to use there.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    base: String,
    key: Option<String>,
}

impl ClientError {
    /// What kind of problem the node named, without the prefix that all of them have.
    pub fn kind(&self) -> Option<&str> {
        let Self::Problem { problem, .. } = self else { return None };
        Some(problem.kind.strip_prefix(TYPE_PREFIX).unwrap_or(&problem.kind))
    }
}

impl Client {
    /// `ca_cert` is a PEM file whose authorities are trusted instead of the public ones.
    pub fn new(url: &str, key: Option<&str>, ca_cert: Option<&Path>) -> Result<Self, ClientError> {
        let bad_url = || ClientError::Url(url.to_owned());
        let base = url.trim_end_matches('/');
        let uri: Uri = base.parse().map_err(|_| bad_url())?;
        let authority = uri.authority().ok_or_else(bad_url)?;
        if !matches!(uri.scheme_str(), Some("http" | "https"))
            || uri.query().is_some()
            || authority.as_str().contains('@')
        {
            return Err(bad_url());
        }
        if key.is_some_and(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(ClientError::Key);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
        if let Some(path) = ca_cert {
            tls = tls.root_certs(authorities(path)?);
        }
        // A proxy's loopback is not ours.
        let local = matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]");
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("weft/", env!("CARGO_PKG_VERSION")))
            .proxy(if local { None } else { Proxy::try_from_env() })
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .tls_config(tls.build())
            .build();
        Ok(Self { agent: config.new_agent(), base: base.to_owned(), key: key.map(str::to_owned) })
    }

    pub fn url(&self) -> &str {
        &self.base
    }

    /// Sends a request; anything but success is an error.
    fn send(&self, ask: Ask<'_>) -> Result<Response<ureq::Body>, ClientError> {
        let path = ask.path;
        let mut request = Request::builder().method(ask.method).uri(format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if ask.body.is_some_and(|body| body.len() >= EXPECT_FROM) {
            request = request.header("expect", "100-continue");
        }
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let response = match ask.body {
            Some(body) => self.run(request.body(body), ask.wait).map_err(|error| match error {
                ClientError::Cut(reason) if body.len() >= EXPECT_FROM => {
                    ClientError::HungUp { url: self.base.clone(), reason }
                }
                other => other,
            }),
            None => self.run(request.body(()), ask.wait),
        }?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response, path)) }
    }

    fn run(
        &self,
        request: ureq::http::Result<Request<impl ureq::AsSendBody>>,
        wait: Wait,
    ) -> Result<Response<ureq::Body>, ClientError> {
        let request = request.map_err(|error| self.failed(error.into()))?;
        let configured = self.agent.configure_request(request);
        let configured = match wait {
            Wait::Whole(limit) => configured.timeout_global(Some(limit)),
            Wait::EachRead(limit) => configured.timeout_per_read(Some(limit)),
            Wait::Forever => configured,
        };
        self.agent.run(configured.build()).map_err(|error| self.failed(error))
    }

    /// Sends a request whose answer is JSON.
    fn json<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, ClientError> {
        let response = self.send(ask)?;
        let status = response.status().as_u16();
        let bytes = self.whole(response)?;
        serde_json::from_slice(&bytes).map_err(|_| ClientError::Foreign { url: self.base.clone(), status })
    }

    /// All of an answer's body.
    fn whole(&self, response: Response<ureq::Body>) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        response.into_body().into_reader().read_to_end(&mut bytes).map_err(|error| self.failed(error.into()))?;
        Ok(bytes)
    }

    fn refusal(&self, response: Response<ureq::Body>, path: String) -> ClientError {
        let status = response.status().as_u16();
        let mut text = Vec::new();
        match response.into_body().into_reader().take(MAX_PROBLEM).read_to_end(&mut text) {
            Err(error) => self.failed(error.into()),
            Ok(_) => match serde_json::from_slice(&text) {
                Ok(problem) => ClientError::Problem { problem: Box::new(problem), path },
                Err(_) => ClientError::Foreign { url: self.base.clone(), status },
            },
        }
    }

    fn failed(&self, error: ureq::Error) -> ClientError {
        let url = self.base.clone();
        match error {
            ureq::Error::Timeout(_) => ClientError::Timeout { url },
            ureq::Error::Io(error) => {
                let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                match error.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                        ClientError::Cut(error.to_string())
                    }
                    _ => ClientError::Unreachable { url, reason: error.to_string(), refused },
                }
            }
            other => ClientError::Unreachable { url, reason: other.to_string(), refused: false },
        }
    }
}

fn authorities(path: &Path) -> Result<RootCerts, ClientError> {
    let failed = |reason: String| ClientError::Certificate { path: path.to_owned(), reason };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| failed(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(failed("no certificate in it".to_owned()));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// Answers one request with `response` and closes the connection.
    fn answering(response: &'static str) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
        });
        Client::new(&url, Some("weft_key"), None).unwrap()
    }

    #[test]
    fn a_problem_keeps_its_type_and_detail() {
        let client = answering(
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\ncontent-length: 78\r\n\r\n\
             {\"type\":\"function-not-found\",\"title\":\"t\",\"status\":404,\"detail\":\"no function\"}  ",
        );
        match client.node() {
            Err(ClientError::Problem { problem, .. }) => assert_eq!(problem.detail, "no function"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_is_not_a_nodes_is_told_apart() {
        let client = answering("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>");
        assert!(matches!(client.node(), Err(ClientError::Foreign { status: 200, .. })));
    }

    #[test]
    fn a_stream_that_is_cut_short_is_an_error() {
        let client = answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
        let mut text = String::new();
        assert!(client.backup().unwrap().read_to_string(&mut text).is_err(), "{text}");
    }

    #[test]
    fn a_redirect_is_not_followed() {
        let client = answering("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
        assert!(matches!(client.node(), Err(ClientError::Foreign { status: 302, .. })));
    }

    #[test]
    fn nobody_listening_is_refused() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Client::new(&format!("http://127.0.0.1:{port}"), None, None).unwrap();
        assert!(matches!(client.node(), Err(ClientError::Unreachable { refused: true, .. })));
    }

    #[test]
    fn only_urls_of_nodes_are_taken() {
        for bad in ["", "node", "ftp://node", "http://", "http://user:secret@node", "http://node/?a=b"] {
            assert!(matches!(Client::new(bad, None, None), Err(ClientError::Url(_))), "{bad}");
        }
        assert!(Client::new("https://node:7420/", None, None).is_ok());
        assert!(matches!(Client::new("http://node", Some("a\nb"), None), Err(ClientError::Key)));
    }
}
