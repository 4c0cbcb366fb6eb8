//! How an invocation can fail.

use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap};

use super::limits::{MAX_HANDLES, MAX_TABLE_ELEMENTS, MAX_WASM_STACK};
use crate::text;

/// A limit that a guest ran into: its name, which is the name of the quota or setting that raises it, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitHit {
    #[error("used more than `cpu_ms` = {0} ms of CPU time")]
    Cpu(u64),
    #[error("ran longer than `wall_ms` = {0} ms")]
    Wall(u64),
    #[error("needed more memory than `{name}` = {limit} bytes")]
    Memory { name: &'static str, limit: u64 },
    #[error("needed more than {MAX_TABLE_ELEMENTS} table elements (`max_table_elements`)")]
    Tables,
    #[error("recursed deeper than {MAX_WASM_STACK} bytes of stack (`max_wasm_stack`)")]
    Stack,
    #[error("passed more than `max_payload` = {0} bytes out of the sandbox at once")]
    Payload(u64),
    #[error("held more than {MAX_HANDLES} host resources (`max_handles`)")]
    Handles,
    #[error("was stopped")]
    Stopped,
}

impl LimitHit {
    /// The limit's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu_ms",
            Self::Wall(_) => "wall_ms",
            Self::Memory { name, .. } => name,
            Self::Tables => "max_table_elements",
            Self::Stack => "max_wasm_stack",
            Self::Payload(_) => "max_payload",
            Self::Handles => "max_handles",
            Self::Stopped => "stop",
        }
    }
}

/// As much as is kept of what a guest says of its error.
fn cut(text: String) -> String {
    text::cut(text, text::MOST_ERROR)
}

/// Why an invocation has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function said so itself.
    #[error("the function answered with an error ({kind}): {message}")]
    Function { kind: &'static str, message: String },
    #[error("the function {0}")]
    Limit(LimitHit),
    /// The guest stopped by itself; `said` is the last error that it logged, such as a panic's message.
    #[error("the function trapped: {}", said.as_ref().unwrap_or(trap))]
    Trap { trap: String, said: Option<String> },
    /// Not the guest's fault.
    #[error("the sandbox failed: {0}")]
    Host(String),
}

impl InvokeError {
    /// The function's own error, with as much of its text as is kept.
    pub fn said_by_function(kind: &'static str, message: String) -> Self {
        Self::Function { kind, message: cut(message) }
    }

    fn trapped(trap: String, said: Option<String>) -> Self {
        Self::Trap { trap: cut(trap), said: said.map(cut) }
    }

    /// Whether it failed for what the node is like just now, whatever the function is: it may go well another time.
    pub fn is_the_nodes_fault(&self) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Limit(LimitHit::Memory { name, .. }) => *name == "max_memory",
            Self::Function { kind, .. } => *kind == "device-lost",
            Self::Limit(_) | Self::Trap { .. } => false,
        }
    }

    /// Whether more memory of its own would have helped, in its sandbox or on its device.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Limit(LimitHit::Memory { name, .. }) => *name == "memory",
            Self::Function { kind, .. } => *kind == "out-of-device-memory",
            Self::Host(_) | Self::Limit(_) | Self::Trap { .. } => false,
        }
    }
}

/// Finds out what a wasmtime error means. `refused` is what the memory and table meter last said no to, `payload` the
/// limit on what a host call carries.
pub fn classify(error: &wasmtime::Error, refused: Option<LimitHit>, payload: u64, said: Option<String>) -> InvokeError {
    if let Some(hit) = error.downcast_ref::<LimitHit>() {
        return InvokeError::Limit(*hit);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => return InvokeError::Limit(LimitHit::Stack),
        Some(trap) => {
            // A guest that is refused memory usually gives up with `unreachable`: the refusal is the reason.
            return match refused {
                Some(hit) => InvokeError::Limit(hit),
                None => InvokeError::trapped(trap.to_string(), said),
            };
        }
        None => {}
    }
    if let Some(hit) = refused {
        return InvokeError::Limit(hit);
    }
    if matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
        return InvokeError::Limit(LimitHit::Handles);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return InvokeError::Host(error.to_string());
    }
    // These have no type to tell them by: handles that the guest itself makes, a response, and WASI's randomness.
    let cause = error.root_cause().to_string();
    if cause.contains("store handle limit exceeded") {
        return InvokeError::Limit(LimitHit::Handles);
    }
    if cause.contains("fuel allocated for hostcalls has been exhausted")
        || (cause.starts_with("requested len") && cause.contains("exceeds limit"))
    {
        return InvokeError::Limit(LimitHit::Payload(payload));
    }
    InvokeError::trapped(cause, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_of_its_error_is_kept_up_to_a_limit() {
        let long = format!("first{}last", "ä".repeat(1 << 20));
        let InvokeError::Function { message, .. } = InvokeError::said_by_function("other", long) else {
            panic!("it is the function's error");
        };
        assert!(message.len() <= text::MOST_ERROR, "{} bytes", message.len());
        assert!(message.starts_with("first") && message.ends_with("last"), "{message}");
        assert!(message.contains("more bytes"), "{message}");
        let short = InvokeError::said_by_function("other", "no".to_owned());
        assert_eq!(short, InvokeError::Function { kind: "other", message: "no".to_owned() });
    }
}
