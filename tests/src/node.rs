//! A node for a test: a real process on a free port, stopped by its process id.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use weft::api::types::NodeView;

use crate::components::weft;
use crate::http::Client;

/// How a node is started.
#[derive(Clone, Default)]
pub struct Options {
    dev: bool,
    settings: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Options {
    /// One tenant and no keys.
    pub fn dev(mut self) -> Self {
        self.dev = true;
        self
    }

    /// A flag of `weft serve`, such as `("max-instances", "4")`.
    pub fn set(mut self, flag: &str, value: impl ToString) -> Self {
        self.settings.extend([format!("--{flag}"), value.to_string()]);
        self
    }

    /// A variable of its environment.
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }

    pub fn start(self) -> Result<Node> {
        Node::start(self, Arc::new(tempfile::tempdir()?))
    }

    /// Starts on a data directory that another node has left.
    pub fn start_in(self, folder: Arc<TempDir>) -> Result<Node> {
        Node::start(self, folder)
    }
}

/// A running node. Dropping it kills it.
pub struct Node {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    options: Options,
    folder: Arc<TempDir>,
    operator_key: Option<String>,
    url: String,
}

impl Node {
    fn start(options: Options, folder: Arc<TempDir>) -> Result<Self> {
        let mut command = Command::new(weft()?);
        command.arg("serve").arg("--data-dir").arg(folder.path().join("data"));
        if !options.settings.iter().any(|flag| flag == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if options.dev {
            command.arg("--dev");
        }
        let log = std::fs::File::options().create(true).append(true).open(folder.path().join("log"))?;
        let mut child = command
            .args(&options.settings)
            .env_remove("WEFT_KEY")
            .env_remove("WEFT_URL")
            .envs(options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut operator_key = None;
        let url = loop {
            let mut line = String::new();
            if stdout.read_line(&mut line)? == 0 {
                child.kill().ok();
                child.wait()?;
                bail!("the node did not start: {}", std::fs::read_to_string(folder.path().join("log"))?);
            }
            if let Some(key) = line.trim().strip_prefix("operator key, shown this once: ") {
                operator_key = Some(key.to_owned());
            }
            if let Some(url) = line.trim().strip_prefix("listening on ") {
                break url.to_owned();
            }
        };
        Ok(Self { child, _stdout: stdout, options, folder, operator_key, url })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder that holds the node's `data` and `log`.
    pub fn folder(&self) -> Arc<TempDir> {
        self.folder.clone()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What the node has written to its own log.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("log"))?)
    }

    pub fn operator_key(&self) -> Option<&str> {
        self.operator_key.as_deref()
    }

    /// Somebody with no key. With `--dev`, that is the developer.
    pub fn anybody(&self) -> Client {
        Client::new(&self.url, None)
    }

    /// The operator, whose key was shown when the node first started.
    pub fn operator(&self) -> Result<Client> {
        let key = self.operator_key.as_deref().context("this node has shown no operator key")?;
        Ok(Client::new(&self.url, Some(key)))
    }

    /// Makes a tenant; `quota` names what differs from the defaults.
    pub fn tenant(&self, name: &str, quota: serde_json::Value) -> Result<Client> {
        let created = self.operator()?.post("/v1/tenants", &json!({ "name": name, "quota": quota }))?.json()?;
        Ok(Client::new(&self.url, Some(created["key"].as_str().context("no key")?)))
    }

    /// The node as its operator sees it.
    pub fn view(&self) -> Result<NodeView> {
        Ok(serde_json::from_value(self.operator()?.get("/v1/node")?.json()?)?)
    }

    /// Waits until nothing runs and nothing waits.
    pub fn idle(&self, at_most: Duration) -> Result<()> {
        let is_idle = |view: NodeView| (view.instances, view.waiting, in_use(&view)) == (0, 0, 0);
        eventually(at_most, || self.view().map(is_idle))
            .with_context(|| format!("the node is not idle: {:?}", self.view()))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) -> Result<()> {
        Ok(kill_process(self.pid(), Signal::TERM)?)
    }

    /// Waits for the process to end.
    pub fn wait(&mut self, at_most: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < at_most {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the node is still running after {at_most:?}: {}", self.log()?)
    }

    /// Stops in order; anything but exit code 0 is an error.
    pub fn stop(mut self) -> Result<Arc<TempDir>> {
        self.terminate()?;
        let status = self.wait(Duration::from_secs(40))?;
        ensure!(status.success(), "{status}: {}", self.log()?);
        Ok(self.folder.clone())
    }

    /// kill -9.
    pub fn kill(mut self) -> Result<Arc<TempDir>> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.folder.clone())
    }

    /// kill -9 and start again on the same data, with the same settings. The operator's key goes on working.
    pub fn kill_and_restart(self) -> Result<Self> {
        let (options, key) = (self.options.clone(), self.operator_key.clone());
        let mut node = options.start_in(self.kill()?)?;
        node.operator_key = node.operator_key.take().or(key);
        Ok(node)
    }

    /// Bytes of the process that are in memory now.
    /// Processor time that the node's process has used.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // After the name, which is in parentheses and may have spaces: the 12th and 13th are what it used, in ticks.
        let numbers = stat.rsplit_once(')').context("no name in `stat`")?.1;
        let ticks: Vec<u64> = numbers.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Duration::from_millis(1_000 * ticks.iter().sum::<u64>() / rustix::param::clock_ticks_per_second()))
    }

    pub fn resident(&self) -> Result<u64> {
        status_field(self.pid(), "VmRSS:").map(|kib| kib * 1024)
    }

    /// File descriptors that the process has open.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_nonzero()))?.count())
    }
}

/// The most bytes of a process that were ever in memory.
pub fn most_resident(pid: Pid) -> Result<u64> {
    status_field(pid, "VmHWM:").map(|kib| kib * 1024)
}

fn status_field(pid: Pid, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

impl Drop for Node {
    fn drop(&mut self) {
        // Already gone, most of the time.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Asks again until `condition` holds, at most `at_most` long.
pub fn eventually(at_most: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !condition()? {
        ensure!(start.elapsed() < at_most, "it did not come true within {at_most:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Memory of what goes on, without that of what is kept: code that is loaded, and records of jobs.
pub fn in_use(view: &NodeView) -> u64 {
    view.memory.saturating_sub(view.loaded_bytes + view.job_bytes)
}
