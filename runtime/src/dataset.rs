//! Data sets: files in, shards and batches out.
//!
//! A data set never changes: its version is the digest of its [`Manifest`], which names the blocks that hold its
//! samples. Nothing here knows of tenants or HTTP.
//!
//! In the order that a sample meets them:
//! - [`read`]: files of many formats become [`Rows`]
//! - [`build`]: rows become blocks and a manifest, with statistics counted on the way
//! - [`block`]: how rows lie in a block
//! - [`statistics`]: mean, variance and range, which transforms need
//! - [`preview`]: a few samples, for people
//! - [`shard`]: which samples belong to which worker, in which order
//! - [`blocks`]: where blocks are read from, and a cache of them
//! - [`transform`]: stored numbers become those that are trained with
//! - [`batches`]: a shard's samples as tensors on a device, ahead of the step that needs them
//!
//! And where no file is needed: [`synth`] makes samples by a rule, [`sampled`] draws them from another data set, [`digits`] is
//! shipped.

pub mod batches;
pub mod block;
pub mod blocks;
pub mod build;
pub mod digits;
pub mod manifest;
pub mod picks;
pub mod preview;
pub mod read;
pub mod rows;
pub mod sampled;
pub mod shard;
pub mod statistics;
pub mod synth;
pub mod transform;

pub use build::{BlockSink, BuildError, Builder, Options, Sources};
pub use manifest::{BlockRef, Manifest, Split, Statistics, Transform};
pub use rows::{Features, Labels, Rows, Samples, Values};
