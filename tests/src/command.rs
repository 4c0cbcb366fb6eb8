//! The `weft` command as a user runs it, with settings of its own and nothing of whoever runs the tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::components::weft;
use crate::http::Client;

/// A user with a home folder, in which commands run.
pub struct User {
    home: TempDir,
    variables: Vec<(String, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl User {
    pub fn new() -> Result<Self> {
        Ok(Self { home: tempfile::tempdir()?, variables: Vec::new() })
    }

    /// Somebody whose variables name a node and a key.
    pub fn of(client: &Client) -> Result<Self> {
        let user = Self::new()?.with("WEFT_URL", client.url());
        Ok(match client.key() {
            Some(key) => user.with("WEFT_KEY", key),
            None => user,
        })
    }

    /// With this variable, too.
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A file in the home folder.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.home().join(name);
        std::fs::write(&path, content)?;
        Ok(path)
    }

    /// `weft` with these arguments, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(weft()?);
        let foreign = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEFT_"));
        for (name, _) in foreign {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.home()).env("XDG_CONFIG_HOME", self.home().join("settings"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs `weft` to its end.
    pub fn weft(&self, arguments: &[&str]) -> Result<Ended> {
        let output = self.command(arguments)?.output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
    }

    /// Runs `weft`, and does not take no for an answer.
    pub fn must(&self, arguments: &[&str]) -> Result<String> {
        let ended = self.weft(arguments)?;
        ensure!(ended.code == Some(0), "`weft {}`: {ended:?}", arguments.join(" "));
        Ok(ended.stdout)
    }

    /// Runs `weft --json`; what it prints must be one JSON value.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let ended = self.weft(&[arguments, &["--json"]].concat())?;
        ended.json().with_context(|| format!("`weft {}`", arguments.join(" ")))
    }

    /// Starts `weft` and leaves it running.
    pub fn start(&self, arguments: &[&str]) -> Result<Running> {
        Ok(Running(self.command(arguments)?.spawn()?))
    }
}

impl Ended {
    /// What was printed as the one JSON value that it must be.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("not one JSON value: {self:?}"))
    }
}

/// A command that runs. Dropping it ends it.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone, most of the time.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
