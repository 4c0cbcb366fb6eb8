//! Requests to a node, with every answer an answer: an error status is something to look at, not a failure.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use ureq::Agent;
use ureq::http::{HeaderMap, Method, Request};
use weft::api::types::{LogList, Problem, TenantView};
use weft::logs::LogLine;

/// Somebody who calls a node, with or without a key.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(url: &str, key: Option<&str>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(180)))
            .max_idle_connections(64)
            .max_idle_connections_per_host(64);
        Self { agent: config.build().into(), url: url.to_owned(), key: key.map(str::to_owned) }
    }

    /// The same node, somebody else.
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Sends a request. A JSON object among bodies is called what it is, unless the headers call it something else.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer> {
        let mut request =
            Request::builder().method(Method::from_bytes(method.as_bytes())?).uri(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.starts_with(b"{") && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        let mut response = match method {
            "GET" | "HEAD" | "DELETE" | "OPTIONS" if body.is_empty() => self.agent.run(request.body(())?),
            _ => self.agent.run(request.body(body.to_vec())?),
        }
        .with_context(|| format!("{method} {path}"))?;
        let body = response.body_mut().with_config().limit(1 << 30).read_to_vec()?;
        Ok(Answer { status: response.status().as_u16(), headers: response.headers().clone(), body })
    }

    pub fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("POST", path, &[("content-type", "application/json")], &serde_json::to_vec(body)?)
    }

    pub fn deploy(&self, name: &str, component: &[u8]) -> Result<Answer> {
        self.send("PUT", &format!("/v1/functions/{name}"), &[("content-type", "application/wasm")], component)
    }

    /// Deploys, and does not take no for an answer.
    pub fn must_deploy(&self, name: &str, component: &[u8]) -> Result<Value> {
        self.deploy(name, component)?.json()
    }

    pub fn invoke(&self, name: &str, body: &[u8]) -> Result<Answer> {
        self.send("POST", &format!("/v1/functions/{name}/invoke"), &[("content-type", "text/plain")], body)
    }

    /// Invokes, and wants the answer as text.
    pub fn must_invoke(&self, name: &str, body: &str) -> Result<String> {
        let answer = self.invoke(name, body.as_bytes())?;
        ensure!(answer.status == 200, "invoking `{name}` with `{body}`: {answer:?}");
        Ok(answer.text())
    }

    /// What the tenant may use, has used and holds.
    pub fn usage(&self) -> Result<TenantView> {
        Ok(serde_json::from_value(self.get("/v1/usage")?.json()?)?)
    }

    /// The latest lines of a function's log, as many as there can be.
    pub fn log(&self, name: &str) -> Result<Vec<LogLine>> {
        let list: LogList =
            serde_json::from_value(self.get(&format!("/v1/functions/{name}/logs?tail=10000"))?.json()?)?;
        Ok(list.lines)
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The JSON of an answer that was a success.
    pub fn json(&self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "status {}: {}", self.status, self.text());
        serde_json::from_slice(&self.body).with_context(|| self.text())
    }

    /// The problem of an answer that was not.
    pub fn problem(&self) -> Result<Problem> {
        ensure!(self.status >= 400, "status {} is no problem: {}", self.status, self.text());
        ensure!(self.header("content-type") == Some("application/problem+json"), "not a problem: {self:?}");
        let problem: Problem = serde_json::from_slice(&self.body).with_context(|| self.text())?;
        ensure!(problem.status == self.status, "the problem's status differs: {problem:?}");
        Ok(problem)
    }

    /// The problem's type without its prefix, and the limit it names.
    pub fn problem_kind(&self) -> Result<(String, Option<String>)> {
        let problem = self.problem()?;
        let kind = problem.kind.strip_prefix(weft::api::problem::TYPE_PREFIX).unwrap_or(&problem.kind);
        Ok((kind.to_owned(), problem.limit))
    }
}
