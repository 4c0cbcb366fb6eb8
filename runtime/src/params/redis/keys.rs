//! What a tenant's keys are called. All but those of chunks are in one slot.

use crate::params::Space;
use crate::tenant::StoreId;

/// The keys of a space. All but the tenant's own are those of its job.
pub(super) struct Keys {
    prefix: String,
    pub(super) job: String,
}

impl Keys {
    pub(super) fn of(space: &Space) -> Self {
        Self { prefix: Self::prefix(&space.tenant), job: space.job_name().to_owned() }
    }

    pub(super) fn prefix(tenant: &StoreId) -> String {
        format!("weft:{{{}}}", tenant.as_str())
    }

    /// In the order in which scripts know them.
    pub(super) fn all(&self) -> Vec<String> {
        let Self { prefix, job } = self;
        let of_job = |kind: &str| format!("{prefix}:{kind}:{job}");
        let of_tenant = |kind: &str| format!("{prefix}:{kind}");
        vec![
            of_job("h"),
            of_job("z"),
            of_tenant("u"),
            of_job("e"),
            of_tenant("x"),
            of_tenant("g"),
            of_tenant("i"),
            of_tenant("j"),
            of_job("n"),
            of_tenant("r"),
        ]
    }

    /// What the hashes of kept answers begin with.
    pub(super) fn answers(tenant: &StoreId) -> String {
        format!("{}:o", Self::prefix(tenant))
    }

    /// Chunks that are being deleted.
    pub(super) fn doomed(tenant: &StoreId) -> String {
        format!("{}:d", Self::prefix(tenant))
    }

    pub(super) fn heads(&self) -> String {
        format!("{}:h:{}", self.prefix, self.job)
    }
}
