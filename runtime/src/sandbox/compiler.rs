//! Compiling a component in a child process with limits of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::compile_child::REFUSED;
use super::gate::{Gate, GateFull, GateLimits, Permit};
use crate::resident::IS_COMPILER;
use crate::tenant::TenantId;

/// How much of the child's complaint is kept.
const MAX_COMPLAINT: u64 = 4 << 10;

/// What compiling one component may take.
#[derive(Clone, Copy, Debug)]
pub struct CompileLimits {
    /// Wall-clock and CPU time.
    pub time: Duration,
    /// Address space of the compiler, in bytes.
    pub memory: u64,
    /// Bytes of compiled code.
    pub artifact: u64,
    /// Components compiled at once.
    pub jobs: u32,
    /// Uploads that may wait for their turn.
    pub waiting: u32,
    /// How long a call waits for its turn, where a component has to be compiled again.
    pub patience: Duration,
    /// How long an upload waits for its turn.
    pub upload_patience: Duration,
}

/// Why there is no compiled component.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("{0}")]
    Refused(String),
    #[error("compiling took longer than `compile_timeout` = {} s", .0.as_secs())]
    TooLong(Duration),
    #[error("compiling needed more than `compile_memory` = {0} bytes")]
    TooMuchMemory(u64),
    #[error("the compiled component is larger than `max_artifact` = {0} bytes")]
    TooLarge(u64),
    #[error("too many uploads at once: {0}")]
    Busy(GateFull),
    #[error("the compiler had no time for this component within `{name}` = {} ms", .limit.as_millis())]
    QueueTimeout { name: &'static str, limit: Duration },
    #[error("the compiler failed: {0}")]
    Failed(String),
}

impl CompileError {
    /// Whether it may be gone when it is tried again: the compiler was busy, was slow because others were, or died.
    pub fn passes(&self) -> bool {
        match self {
            Self::Busy(_) | Self::QueueTimeout { .. } | Self::Failed(_) | Self::TooLong(_) => true,
            Self::Refused(_) | Self::TooMuchMemory(_) | Self::TooLarge(_) => false,
        }
    }
}

/// Runs compiler processes, a few at once, fairly between tenants.
pub struct Compiler {
    program: PathBuf,
    limits: CompileLimits,
    gate: Arc<Gate>,
}

impl Compiler {
    /// `program` is the `weft` binary.
    pub fn new(program: PathBuf, limits: CompileLimits) -> Self {
        let gate = Gate::new(GateLimits {
            places: limits.jobs,
            waiting: limits.waiting,
            waiting_per_tenant: limits.waiting.div_ceil(4),
        });
        Self { program, limits, gate }
    }

    /// How long a call waits for its turn.
    pub fn patience(&self) -> Duration {
        self.limits.patience
    }

    /// Compiles the component in the file `wasm` into the file `artifact`.
    pub async fn compile(&self, tenant: TenantId, wasm: &Path, artifact: &Path) -> Result<(), CompileError> {
        self.compile_within(("compile_queue_timeout", self.limits.upload_patience), tenant, wasm, artifact).await
    }

    /// The same for a call, which waits for its turn only so long. Compiling itself may take as long as ever: were it given
    /// up, the next call would begin again.
    pub async fn compile_for_call(&self, tenant: TenantId, wasm: &Path, artifact: &Path) -> Result<(), CompileError> {
        self.compile_within(("queue_timeout", self.patience()), tenant, wasm, artifact).await
    }

    async fn compile_within(
        &self,
        (name, limit): (&'static str, Duration),
        tenant: TenantId,
        wasm: &Path,
        artifact: &Path,
    ) -> Result<(), CompileError> {
        let turn = self.gate.enter_within(limit, tenant, 1).await;
        let turn = turn.ok_or(CompileError::QueueTimeout { name, limit })?.map_err(CompileError::Busy)?;
        self.compile_now(turn, wasm, artifact).await
    }

    async fn compile_now(&self, _turn: Permit, wasm: &Path, artifact: &Path) -> Result<(), CompileError> {
        let failed = |what: &str, error: std::io::Error| CompileError::Failed(format!("{what}: {error}"));
        let input = File::open(wasm).map_err(|error| failed("opening the upload", error))?;
        let output = File::create(artifact).map_err(|error| failed("creating the artifact", error))?;
        let limits = self.limits;
        let child = Command::new(&self.program)
            .arg("compile-child")
            .args([limits.memory, limits.artifact, limits.time.as_secs().max(1)].map(|limit| limit.to_string()))
            .env_clear()
            .env(OsStr::from_bytes(IS_COMPILER.to_bytes()), "1")
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed("starting it", error))?;
        // Dropping the wait kills the child.
        match tokio::time::timeout(limits.time, self.outcome(child)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CompileError::TooLong(limits.time)),
        }
    }

    async fn outcome(&self, mut child: Child) -> Result<(), CompileError> {
        use std::os::unix::process::ExitStatusExt;
        let mut complaint = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            let mut stderr = stderr.take(MAX_COMPLAINT);
            stderr.read_to_end(&mut complaint).await.map_err(|error| CompileError::Failed(error.to_string()))?;
        }
        let status = child.wait().await.map_err(|error| CompileError::Failed(error.to_string()))?;
        let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        const XCPU: i32 = rustix::process::Signal::XCPU.as_raw();
        const KILL: i32 = rustix::process::Signal::KILL.as_raw();
        const XFSZ: i32 = rustix::process::Signal::XFSZ.as_raw();
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) if code == i32::from(REFUSED) => Err(CompileError::Refused(complaint)),
            (_, Some(XCPU | KILL)) => Err(CompileError::TooLong(self.limits.time)),
            (_, Some(XFSZ)) => Err(CompileError::TooLarge(self.limits.artifact)),
            // An allocation that fails aborts, after saying so.
            _ if complaint.contains("memory allocation of") || complaint.contains("Cannot allocate memory") => {
                Err(CompileError::TooMuchMemory(self.limits.memory))
            }
            _ => Err(CompileError::Failed(format!("{status}: {complaint}"))),
        }
    }
}
