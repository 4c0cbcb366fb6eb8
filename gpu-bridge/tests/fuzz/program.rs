//! A program: what is done, in which order, to which registers. It knows no device.

use weft_gpu::Limits;
use weft_gpu::op::{Meta, Op, Optimizer};

use crate::contents::Contents;

/// Where a tensor is kept between steps.
pub type Register = usize;

/// How many contexts a program has.
pub const CONTEXTS: usize = 2;

/// The room that every context has unless it is meant to run out.
pub const ROOM: usize = 64 << 20;

/// What is done to one or two contexts.
#[derive(Clone, Debug)]
pub struct Program {
    pub limits: [Limits; CONTEXTS],
    pub steps: Vec<Step>,
    /// What is done afterwards by two threads at once, each with registers of its own that start as the same tensors.
    pub branches: [Vec<Step>; 2],
}

#[derive(Clone, Debug)]
pub enum Step {
    Create {
        into: Register,
        context: usize,
        meta: Meta,
        contents: Contents,
    },
    /// The results go to the registers from `into` on.
    Call {
        into: Register,
        context: usize,
        op: Op,
        inputs: Vec<Register>,
    },
    /// What comes of it is not kept.
    Method {
        of: Register,
        method: Method,
    },
    Parameter {
        into: Register,
        of: Register,
        gradient: Option<Register>,
    },
    Detach {
        into: Register,
        of: Register,
    },
    Backward {
        of: Register,
        gradient: Option<Register>,
    },
    Gradient {
        into: Register,
        of: Register,
    },
    ClearGradient {
        of: Register,
    },
    Write {
        of: Register,
        element: usize,
        bytes: usize,
    },
    Read {
        of: Register,
        element: usize,
        bytes: usize,
    },
    ReadAll {
        of: Register,
    },
    Drop {
        register: Register,
    },
    NoGrad {
        context: usize,
        on: bool,
    },
    Cancel {
        context: usize,
        on: bool,
    },
    Threads {
        context: usize,
        count: usize,
    },
    Trim {
        context: usize,
    },
    Train {
        context: usize,
        shapes: Vec<Vec<usize>>,
        optimizer: Optimizer,
        rate: f32,
        resume: u64,
    },
}

/// Those methods of a tensor that check something before they run an operation.
#[derive(Clone, Debug)]
pub enum Method {
    Narrow { axis: usize, start: usize, size: usize },
    Transposed,
    Permute { order: Vec<usize> },
    Slice { starts: Vec<usize>, sizes: Vec<usize>, steps: Vec<usize> },
    Reshape { sizes: Vec<usize> },
    Expand { sizes: Vec<usize> },
    Pad { before: Vec<usize>, after: Vec<usize>, value: f32 },
    SumOver { axes: Vec<usize>, keep: bool },
    TopK { count: usize },
}

impl Program {
    /// The step that fills a register.
    pub fn source(&self, register: Register) -> Option<&Step> {
        self.steps.iter().rev().find(|step| match step {
            Step::Call { into, .. } => *into <= register && register < *into + 3,
            Step::Create { into, .. }
            | Step::Parameter { into, .. }
            | Step::Detach { into, .. }
            | Step::Gradient { into, .. } => *into == register,
            _ => false,
        })
    }
}
