//! The limits of the sandbox that hold for every function, whoever its tenant is.

use serde::Serialize;

/// Linear memories that one function may have.
pub const MAX_MEMORIES: u32 = 4;
/// Tables that one function may have.
pub const MAX_TABLES: u32 = 8;
/// Core instances that one function may consist of.
pub const MAX_CORE_INSTANCES: u32 = 64;
/// Elements of all tables of one function.
pub const MAX_TABLE_ELEMENTS: usize = 100_000;
/// Stack of a guest, in bytes.
pub const MAX_WASM_STACK: usize = 512 << 10;
/// Stack of a guest and of the host functions it calls, in bytes. Host functions get what [`MAX_WASM_STACK`] leaves.
pub const ASYNC_STACK: usize = 2 << 20;
/// Host resources (pollables, streams …) that one instance may hold.
pub const MAX_HANDLES: usize = 4_096;

/// What the operator sets for the sandbox.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxLimits {
    /// Instances of all tenants at once.
    pub instances: u32,
    /// Instances of trainers at once, beside those: whoever starts them counts them.
    pub trainers: u32,
    /// Invocations of all tenants that may wait for an instance.
    pub waiting: u32,
    /// Invocations of one tenant that may wait.
    pub waiting_per_tenant: u32,
    /// Linear memory of one memory, in bytes, whatever a quota says.
    pub memory: u64,
    /// Bytes that one host call, or a response, may carry out of the sandbox.
    pub payload: u64,
    /// Guests that compute at once.
    pub cores: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            instances: 1_024,
            trainers: 64,
            waiting: 4_096,
            waiting_per_tenant: 1_024,
            memory: 4 << 30,
            payload: 16 << 20,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
