//! Data sets: files in, shards and batches out.
//!
//! A data set never changes: its version is the digest of its [`Manifest`], which names the blocks that hold its
//! samples. Nothing here knows of tenants or HTTP.
//!
//! In the order that a sample meets them:
//! - `read`: files of many formats become [`Rows`]
//! - `build`: rows become blocks and a manifest, with statistics counted on the way
//! - `block`: how rows lie in a block
//! - [`shard`]: which samples belong to which worker, in which order
//! - [`blocks`]: where blocks are read from, and a cache of them
//! - [`transform`]: stored numbers become those that are trained with
//! - [`batches`]: a shard's samples as tensors on a device, ahead of the step that needs them

pub mod batches;
pub mod blocks;
pub mod manifest;
pub mod rows;
pub mod shard;
pub mod transform;

pub use manifest::{BlockRef, Manifest, Split};
pub use rows::{Features, Labels, Rows, Values};
