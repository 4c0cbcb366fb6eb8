//! Uploaded files become data sets and models.

use std::sync::Arc;

use super::Node;
use crate::catalog::spec::DataSetSpec;
use crate::catalog::{BuildEnd, CatalogError, DataSet, StoredModel, to_the_end};
use crate::digest::Digest;
use crate::names::Name;
use crate::tenant::Tenant;

impl Node {
    /// Makes a data set, or adds to one. A caller that goes away does not stop it half-way.
    pub async fn make_dataset(
        self: &Arc<Self>,
        tenant: Arc<Tenant>,
        name: Name,
        spec: DataSetSpec,
        append: bool,
    ) -> Result<Arc<DataSet>, CatalogError> {
        if self.is_draining() {
            return Err(CatalogError::Stopping);
        }
        let permit = self.places.build(&tenant).await?;
        let node = self.clone();
        let end = BuildEnd::after(self.settings.build_timeout.0, tenant.clone(), self.stopping.clone());
        to_the_end(async move {
            // Held for as long as the work takes, whoever waits for it.
            let _permit = permit;
            match append {
                true => node.catalog.append_dataset(&tenant, name.as_str(), &spec, &end).await,
                false => node.catalog.create_dataset(&tenant, name, &spec, &end).await,
            }
        })
        .await
    }

    /// Makes an uploaded file a model, just so.
    pub async fn make_model(
        self: &Arc<Self>,
        tenant: Arc<Tenant>,
        name: Name,
        upload: Digest,
    ) -> Result<Arc<StoredModel>, CatalogError> {
        if self.is_draining() {
            return Err(CatalogError::Stopping);
        }
        let permit = self.places.build(&tenant).await?;
        let node = self.clone();
        to_the_end(async move {
            let _permit = permit;
            node.catalog.create_model(&tenant, name, &upload).await
        })
        .await
    }
}
