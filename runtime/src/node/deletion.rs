//! The end of a tenant.

use std::sync::Arc;

use super::Node;
use crate::catalog::CatalogError;
use crate::job::JobError;
use crate::registry::RegistryError;
use crate::tenant::TenantError;

/// Why a tenant was not deleted, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error(transparent)]
    Tenant(#[from] TenantError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("the deletion was interrupted: {0}")]
    Interrupted(String),
}

impl Node {
    /// Deletes a tenant with everything it has, and ends what is being done for it. An operator that goes away does not
    /// stop it half-way.
    pub async fn delete_tenant(self: &Arc<Self>, name: &str) -> Result<(), DeleteError> {
        let (node, name) = (self.clone(), name.to_owned());
        let deleted = tokio::spawn(async move { node.delete_tenant_wholly(&name).await }).await;
        deleted.unwrap_or_else(|error| Err(DeleteError::Interrupted(error.to_string())))
    }

    async fn delete_tenant_wholly(&self, name: &str) -> Result<(), DeleteError> {
        // A deploy that is under way finds the tenant deleted when its turn comes, and leaves nothing.
        let (functions, catalog) = (self.registry.pause().await, self.catalog.pause().await);
        let jobs = self.jobs.roster.pause().await;
        let studies = self.studies.roster.pause().await;
        // A write that was begun before would bring back what is deleted here.
        let flushing = self.flushing.lock().await;
        // Looked up only now: if somebody else has deleted it meanwhile, another tenant may have its name.
        let tenant = self.tenants.get(name)?;
        let records = self.registry.deletion_of(tenant.id).and(self.catalog.deletion_of(tenant.id));
        let records =
            records.and(self.jobs.roster.deletion_of(tenant.id)).and(self.jobs.standing.deletion_of(tenant.id));
        let records = records.and(self.studies.roster.deletion_of(tenant.id));
        self.tenants.delete(name, records.and(self.logs.forget_tenant(tenant.id))).await?;
        self.studies.roster.forget(tenant.id);
        let forget = async {
            self.jobs.standing.forget(tenant.id);
            self.jobs.roster.forget(tenant.id).await?;
            self.catalog.forget(tenant.id, catalog).await?;
            Ok(self.registry.forget(tenant.id, functions).await?)
        };
        let forgotten: Result<(), DeleteError> = forget.await;
        // A Redis that is away is waited for, and nobody else is to wait for it too.
        drop((jobs, studies, flushing));
        self.end_store(&tenant.store).await;
        forgotten
    }
}
