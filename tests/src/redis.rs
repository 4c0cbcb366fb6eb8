//! Real Redis servers on free ports, alone or as a cluster. Dropping one stops it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a server may take to answer after it was started.
const START_WITHIN: Duration = Duration::from_secs(20);

/// Ports of a cluster's own bus are this much higher.
const BUS: u16 = 10_000;

/// A `redis-server` process.
pub struct RedisServer {
    child: Option<Child>,
    folder: TempDir,
    port: u16,
    tls_port: Option<u16>,
    options: Vec<String>,
}

impl RedisServer {
    /// One that keeps nothing when it ends.
    pub fn start() -> Result<Self> {
        Self::with(&["--save", ""])
    }

    /// One that has written whatever it acknowledged.
    pub fn persistent() -> Result<Self> {
        Self::with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    pub fn with(options: &[&str]) -> Result<Self> {
        Self::at(options, None)
    }

    /// One that speaks TLS too, on a port of its own.
    pub fn with_tls(options: &[&str]) -> Result<Self> {
        Self::at(options, Some(free_port()?))
    }

    fn at(options: &[&str], tls_port: Option<u16>) -> Result<Self> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { child: None, folder: tempfile::tempdir()?, port: free_port()?, tls_port, options };
        server.restart()?;
        Ok(server)
    }

    /// Starts it again, on the same port and with what is in its folder.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no", "--dir"]);
        command.arg(self.folder.path()).args(&self.options);
        if let Some(port) = self.tls_port {
            command.args(["--tls-port", &port.to_string()]);
        }
        let child = command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).spawn();
        self.child = Some(child.context("no `redis-server` here: run scripts/setup.sh test")?);
        let start = Instant::now();
        while !self.ask(&["PING"]).is_ok_and(|answer| answer.contains("PONG") || answer.contains("NOAUTH")) {
            ensure!(start.elapsed() < START_WITHIN, "the Redis at port {} does not answer", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// SIGKILL, and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGSTOP: it takes connections, and answers nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("it is not running")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What `redis-cli` says.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(words);
        let output = command.stdin(Stdio::null()).output().context("no `redis-cli` here: run scripts/setup.sh test")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill().ok();
    }
}

/// Three servers that share the slots.
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

impl RedisCluster {
    pub fn start() -> Result<Self> {
        let options = ["--save", "", "--cluster-enabled", "yes", "--cluster-node-timeout", "5000"];
        let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::with(&options)).collect::<Result<_>>()?;
        let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        let mut command = Command::new("redis-cli");
        command.args(["--cluster", "create"]).args(&hosts).args(["--cluster-replicas", "0", "--cluster-yes"]);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let start = Instant::now();
        for server in &servers {
            while !server.ask(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
                ensure!(start.elapsed() < START_WITHIN, "the cluster does not come together");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(Self { servers })
    }

    pub fn address(&self) -> String {
        let hosts: Vec<String> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }
}

/// One for all tests that run at the time; the last one stops it.
pub fn shared_server() -> Result<Arc<RedisServer>> {
    static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
    shared(&SERVER, RedisServer::start)
}

/// As [`shared_server`].
pub fn shared_cluster() -> Result<Arc<RedisCluster>> {
    static CLUSTER: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    shared(&CLUSTER, RedisCluster::start)
}

fn shared<T>(place: &Mutex<Weak<T>>, start: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = place.upgrade() {
        return Ok(there);
    }
    let fresh = Arc::new(start()?);
    *place = Arc::downgrade(&fresh);
    Ok(fresh)
}

/// Free now, with the port of its bus.
fn free_port() -> Result<u16> {
    for _ in 0..1_000 {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let bus = port.checked_add(BUS).map(|bus| TcpListener::bind(("127.0.0.1", bus)));
        if matches!(bus, Some(Ok(_))) {
            return Ok(port);
        }
    }
    bail!("no free ports")
}
