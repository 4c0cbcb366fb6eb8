//! The sandbox without a server around it, for benchmarks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use weft::digest::Digest;
use weft::host::Request;
use weft::logs::{LogBook, LogSink};
use weft::sandbox::{Call, CompileLimits, Compiler, Facts, Loaded, Sandbox, SandboxLimits};
use weft::tenant::{Account, Charge, Quota, Tenant, TenantId};

use crate::components::weft;

/// With the limits of a node that nobody has configured.
pub fn new() -> Result<Arc<Sandbox>> {
    Ok(Arc::new(Sandbox::new(SandboxLimits::default())?))
}

/// Compiles, as a deploy does, and loads.
pub async fn load(sandbox: &Sandbox, component: &[u8]) -> Result<Arc<Loaded>> {
    let time = Duration::from_secs(60);
    let limits = CompileLimits {
        time,
        memory: 2 << 30,
        artifact: 512 << 20,
        jobs: 1,
        waiting: 1,
        patience: time,
        upload_patience: time,
    };
    let folder = tempfile::tempdir()?;
    let (wasm, artifact) = (folder.path().join("wasm"), folder.path().join("artifact"));
    std::fs::write(&wasm, component)?;
    Compiler::new(weft()?, limits).compile(TenantId(0), &wasm, &artifact).await?;
    // SAFETY: our compiler has just written it.
    Ok(Arc::new(unsafe { sandbox.load(&std::fs::read(&artifact)?) }?))
}

/// A tenant that may use as much as there is.
pub fn tenant() -> Result<Arc<Tenant>> {
    let quota = Quota { memory: u64::MAX, instances: u32::MAX, ..Quota::default() };
    Ok(Tenant::unregistered("bench".parse()?, quota, Account::new("max_memory", u64::MAX, None)))
}

/// An invocation as a node would make it.
pub fn call(tenant: &Arc<Tenant>, number: u64, body: &[u8]) -> Call {
    call_until(tenant, number, body, Arc::default())
}

/// An invocation that is told to stop when `stopping` is set.
pub fn call_until(tenant: &Arc<Tenant>, number: u64, body: &[u8], stopping: Arc<AtomicBool>) -> Call {
    let function = tenant.name.clone();
    let log = LogSink::new(Arc::new(LogBook::default()), tenant.clone(), function.clone(), number);
    let facts = Facts { invocation: number, function, version: Digest::of(b""), seed: number, stopping };
    let request = Request { content_type: "text/plain".to_owned(), body: body.to_vec() };
    let charge = Charge::none(tenant.memory.clone());
    Call { tenant: tenant.clone(), request, charge, facts, log, context: None, params: None }
}
