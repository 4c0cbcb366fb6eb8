//! A framework to compare with: a Python process of its own, which waits while ours runs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use weft_tests::components::repository;

/// Which one, and where its environment lies.
pub struct Framework {
    pub name: &'static str,
    /// The folder in `~/.cache/weft`, and the part before `-venv.sh` of the script that fills it.
    folder: &'static str,
    /// Names another folder.
    variable: &'static str,
}

pub const PYTORCH: Framework = Framework { name: "PyTorch", folder: "torch", variable: "WEFT_TORCH" };
pub const OPTUNA: Framework = Framework { name: "Optuna", folder: "optuna", variable: "WEFT_OPTUNA" };
pub const TENSORFLOW: Framework = Framework { name: "TensorFlow", folder: "tensorflow", variable: "WEFT_TENSORFLOW" };

/// A framework that runs, waiting for requests. Dropping it ends it.
pub struct Process {
    name: &'static str,
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Framework {
    /// Starts one of the scripts of this repository, with whatever it takes to have the framework.
    pub fn start(&self, script: &str, arguments: &[&OsStr]) -> Result<Process> {
        let (name, scripts) = (self.name, repository().join("scripts"));
        let install = format!("{}-venv.sh", self.folder);
        let ready = Command::new(scripts.join(&install)).stdout(Stdio::null()).status()?;
        ensure!(ready.success(), "there is no {name} to compare with: `scripts/{install}` failed");
        let mut process = Command::new(self.environment()?.join("bin/python"))
            .arg(scripts.join(script))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name}'s Python does not start"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            bail!("a process was started without its pipes");
        };
        Ok(Process { name, process, requests, answers: BufReader::new(answers) })
    }

    /// Whether its environment was made before: what is only measured beside it then is not worth gigabytes.
    pub fn is_there(&self) -> bool {
        self.environment().is_ok_and(|folder| folder.join("bin/python").is_file())
    }

    fn environment(&self) -> Result<PathBuf> {
        match std::env::var_os(self.variable).filter(|folder| !folder.is_empty()) {
            Some(folder) => Ok(folder.into()),
            None => {
                let home = PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?);
                Ok(home.join(".cache/weft").join(self.folder))
            }
        }
    }
}

impl Process {
    /// One line of JSON there, and one back.
    pub fn ask<A: DeserializeOwned>(&mut self, request: &Value) -> Result<A> {
        let name = self.name;
        writeln!(self.requests, "{request}")?;
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "{name} gave up on {request}; see its message above");
        serde_json::from_str(&line).with_context(|| format!("{name} answered `{line}`"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and nothing depends on how it ends.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
