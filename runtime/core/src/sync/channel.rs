//! Channels: through what contributions travel from worker to worker.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::words;

/// Through what contributions travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelKind {
    /// The memory of the node.
    #[default]
    Memory,
    /// The parameter store: embedded, or Redis or Valkey.
    Store,
    /// The blob store: files, or an object store.
    Blobs,
}

words!(ChannelKind, "a channel", "memory" => Memory, "store" => Store, "blobs" => Blobs);
