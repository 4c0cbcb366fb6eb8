//! One way of doing harm, and what is to come of it.

use std::ops::RangeInclusive;

use anyhow::Result;
use serde_json::{Value, json};
use weft_tests::{components, guests};

/// How often each harm is done in an ordinary run. `WEFT_SOAK` says otherwise.
const TIMES: usize = 20;

/// The quota of whoever does harm: small, so that it is soon reached.
fn quota() -> Value {
    json!({
        "instances": 8,
        "instance_memory": 64 << 20,
        "memory": 256 << 20,
        "cpu_ms": 2_000,
        "wall_ms": 10_000,
        "log_bytes": 256 << 10,
    })
}

/// What is uploaded.
#[derive(Clone, Copy)]
pub enum Upload {
    /// The crate `guests/hostile`, which does what its request names.
    Hostile,
    /// A component of `guests/wat`.
    Wat(&'static str),
    /// Bytes that are no WebAssembly at all.
    Garbage,
    Nothing,
    /// The first half of a component.
    Truncated,
    CompileBomb,
}

impl Upload {
    fn bytes(self) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Hostile => components::hostile()?.to_vec(),
            Self::Wat(name) => guests::wat(name)?,
            Self::Garbage => (0..100_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
            Self::Nothing => Vec::new(),
            Self::Truncated => guests::truncated(&components::hostile()?, 1, 2).to_vec(),
            Self::CompileBomb => guests::compile_bomb()?,
        })
    }
}

/// What the caller is told.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    /// An answer that contains this: no harm was done.
    Answer(&'static str),
    /// A problem: status, kind, limit, and a part of its text.
    Problem { status: u16, kind: &'static str, limit: Option<&'static str>, detail: &'static str },
}

/// A harm.
pub struct Harm {
    pub upload: Vec<u8>,
    /// The request's body; without one, the harm is the upload itself.
    pub body: Option<&'static str>,
    pub outcome: Outcome,
    pub quota: Value,
    pub flags: Vec<(&'static str, &'static str)>,
    /// CPU milliseconds that each invocation has to be charged.
    pub cpu_ms: Option<RangeInclusive<u64>>,
    /// Log bytes that each invocation has to be charged.
    pub log_bytes: Option<RangeInclusive<u64>>,
    /// What a line of the function's log has to contain.
    pub log: Option<&'static str>,
    pub times: usize,
}

impl Harm {
    fn new(upload: Upload, body: Option<&'static str>) -> Result<Self> {
        let soak = std::env::var("WEFT_SOAK").ok().map(|times| times.parse()).transpose()?;
        Ok(Self {
            upload: upload.bytes()?,
            body,
            outcome: Outcome::Answer(""),
            quota: quota(),
            flags: Vec::new(),
            cpu_ms: None,
            log_bytes: None,
            log: None,
            times: soak.unwrap_or(TIMES),
        })
    }

    /// A component that is deployed and then called with this body.
    pub fn call(upload: Upload, body: &'static str) -> Result<Self> {
        Self::new(upload, Some(body))
    }

    /// A component that is not even to be deployed.
    pub fn upload(upload: Upload) -> Result<Self> {
        Self::new(upload, None)
    }

    pub fn answers(self, text: &'static str) -> Self {
        Self { outcome: Outcome::Answer(text), ..self }
    }

    fn problem(self, status: u16, kind: &'static str, limit: Option<&'static str>, detail: &'static str) -> Self {
        Self { outcome: Outcome::Problem { status, kind, limit, detail }, ..self }
    }

    /// Runs out of time, by the CPU's clock or by the wall's.
    pub fn runs_out_of(self, limit: &'static str) -> Self {
        self.problem(504, "deadline-exceeded", Some(limit), limit)
    }

    pub fn exceeds(self, limit: &'static str) -> Self {
        self.problem(502, "limit-exceeded", Some(limit), limit)
    }

    pub fn traps(self, detail: &'static str) -> Self {
        self.problem(502, "function-trapped", None, detail)
    }

    pub fn refused(self, detail: &'static str) -> Self {
        self.problem(422, "invalid-component", None, detail)
    }

    pub fn takes_the_compiler_past(self, limit: &'static str) -> Self {
        self.problem(422, "compile-limit", Some(limit), limit)
    }

    pub fn too_large(self, limit: &'static str) -> Self {
        self.problem(413, "too-large", Some(limit), limit)
    }

    /// Another limit for this harm's tenant.
    pub fn with(mut self, limit: &str, value: u64) -> Self {
        self.quota[limit] = value.into();
        self
    }

    /// A flag of the node.
    pub fn node(mut self, flag: &'static str, value: &'static str) -> Self {
        self.flags.push((flag, value));
        self
    }

    /// What the limit allows has to be charged, and not much more: guests look up once a millisecond, and a machine that
    /// is busy looks up late.
    pub fn costs_cpu_ms(self, allowed: u64) -> Self {
        Self { cpu_ms: Some(allowed..=allowed + allowed / 2 + 10), ..self }
    }

    pub fn costs_log_bytes(self, bytes: RangeInclusive<u64>) -> Self {
        Self { log_bytes: Some(bytes), ..self }
    }

    pub fn logs(self, text: &'static str) -> Self {
        Self { log: Some(text), ..self }
    }

    /// For what takes seconds each time: a tenth as often.
    pub fn seldom(self) -> Self {
        Self { times: self.times.div_ceil(10), ..self }
    }
}
