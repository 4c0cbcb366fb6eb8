//! A shard's samples as tensors on a device, ahead of the step that needs them.
//!
//! [`Assembler`] makes one batch after the other, on whichever thread asks: rows are gathered from blocks and transformed
//! straight into a tensor's memory. [`Batches`] runs one on a thread of its own, a few batches ahead. Both end after an
//! error. What is held at a time is one window of blocks (see [`shard`](super::shard)) and the batches made ahead.

use std::any::Any;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use weft_gpu::{Context, Tensor};

use super::blocks::Blocks;
use super::manifest::{Manifest, Split};
use super::picks::Picks;
use super::shard::{Last, Plan, ShardError};
use super::transform::TransformError;
use crate::digest::Digest;

mod assemble;
mod queue;

pub use assemble::Assembler;
use queue::{Queue, Turn};

/// Batches that are made ahead, unless told otherwise.
pub const DEPTH: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// Some samples on a device.
#[derive(Clone, Debug)]
pub struct Batch {
    pub features: Inputs,
    /// `[count]` of i32 for classes, `[count, width]` of f32 for values.
    pub labels: Option<Tensor>,
    pub count: usize,
}

/// The features of a batch.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// f32, `[count, shape of a sample…]`.
    Dense(Tensor),
    Sparse(Box<Csr>),
}

/// Sparse rows as the operations of `weft-gpu` take them.
#[derive(Clone, Debug)]
pub struct Csr {
    /// u32, `[count + 1]`.
    pub offsets: Tensor,
    /// u32, one for each value.
    pub columns: Tensor,
    /// f32.
    pub values: Tensor,
    /// How many columns there are.
    pub width: usize,
}

/// Samples to train on, or to test with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subset {
    #[default]
    Train,
    Test,
}

impl Subset {
    pub fn of(self, manifest: &Manifest) -> &Split {
        match self {
            Self::Train => &manifest.train,
            Self::Test => &manifest.test,
        }
    }
}

/// What batches are made from.
#[derive(Clone)]
pub struct Source<'a> {
    /// What errors call the data set.
    pub name: &'a str,
    pub manifest: &'a Manifest,
    pub part: Subset,
    /// Best a [`Cache`](super::blocks::Cache) that workers share: blocks are read once an epoch and window.
    pub blocks: Arc<dyn Blocks>,
}

/// Which batches, and how many ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub plan: Plan,
    pub shard: u64,
    pub size: NonZeroU32,
    pub last: Last,
    /// The first batch to make: where a job that was stopped goes on.
    pub start: u64,
    /// Which samples of its blocks the split consists of, if not of all.
    pub picks: Option<Picks>,
    pub depth: NonZeroUsize,
}

impl Options {
    pub fn new(plan: Plan, size: NonZeroU32) -> Self {
        Self { plan, shard: 0, size, last: Last::Keep, start: 0, picks: None, depth: DEPTH }
    }
}

/// Why there is no batch.
#[derive(Debug, thiserror::Error)]
#[error("data set `{dataset}`: {cause}")]
pub struct BatchError {
    pub dataset: String,
    pub cause: Cause,
}

#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Shard(#[from] ShardError),
    #[error(transparent)]
    Transform(#[from] TransformError),
    #[error("block {block} ({digest}) cannot be read: {error}")]
    Read { block: usize, digest: Digest, error: io::Error },
    #[error("block {block} ({digest}) is damaged: {reason}")]
    Damaged { block: usize, digest: Digest, reason: String },
    #[error(transparent)]
    Device(#[from] weft_gpu::Error),
    #[error("no thread for batches could be started: {0}")]
    Thread(io::Error),
    #[error("batches ended in a panic: {0}")]
    Panicked(String),
}

/// Batches of one epoch, made ahead on a thread that ends with the last of them, with an error, when this is dropped, or
/// when the context is cancelled.
pub struct Batches {
    queue: Arc<Queue<Result<Batch, BatchError>>>,
    total: u64,
    dataset: String,
}

impl Batches {
    /// What is wrong with the source or the options is told at once, what is wrong with a block when its turn comes.
    pub fn start(source: Source<'_>, options: Options, context: &Context) -> Result<Self, BatchError> {
        let dataset = source.name.to_owned();
        let depth = options.depth.get();
        let mut assembler = Assembler::new(source, options, context)?;
        let total = assembler.remaining();
        let queue = Arc::new(Queue::new(depth, context.cancel().clone()));
        let theirs = Arc::clone(&queue);
        let name = dataset.clone();
        let work = move || {
            let (queue, cancel) = (theirs, assembler.context().cancel().clone());
            let listener = Arc::downgrade(&queue);
            let _listening = cancel.listen(listener);
            let _finished = queue.producing();
            loop {
                match queue.room() {
                    Turn::Go => {}
                    Turn::Cancelled => return queue.push(Err(assembler.error(weft_gpu::Error::Cancelled))),
                    Turn::Closed => return,
                }
                match catch_unwind(AssertUnwindSafe(|| assembler.next())) {
                    Ok(Some(batch)) => queue.push(batch),
                    Ok(None) => return,
                    Err(panic) => {
                        let cause = Cause::Panicked(message(&*panic));
                        return queue.push(Err(BatchError { dataset: name, cause }));
                    }
                }
            }
        };
        match std::thread::Builder::new().name("batches".into()).spawn(work) {
            Ok(_) => Ok(Self { queue, total, dataset }),
            Err(error) => Err(BatchError { dataset, cause: Cause::Thread(error) }),
        }
    }

    /// How many batches there are, from the one it started with.
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    /// Waits for the next batch.
    fn next(&mut self) -> Option<Self::Item> {
        let cancelled = || BatchError { dataset: self.dataset.clone(), cause: weft_gpu::Error::Cancelled.into() };
        self.queue.pop(|| Err(cancelled()))
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason was given".to_owned())
}

#[cfg(test)]
mod tests;
