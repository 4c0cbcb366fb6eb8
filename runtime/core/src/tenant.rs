//! Who a job belongs to: a number that is never given twice.

use serde::{Deserialize, Serialize};

/// What records call a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub u64);

impl TenantId {
    /// As the first part of a record's key: keys of one tenant sort together.
    pub fn key(self) -> String {
        format!("{:016x}", self.0)
    }
}
