//! What a job comes to is kept: epochs, checkpoints, models, and what it cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::JobError;
use super::checkpoint::Training;
use super::common::Common;
use super::engine::{Keeper, ModelFacts};
use super::live::Live;
use super::model::Shared;
use super::record::{CheckpointRef, EpochRecord, JobEvent};
use crate::catalog::to_the_end;
use crate::clock::unix_ms;
use crate::model::{Input, Meta};
use crate::names::{MAX_NAME, Name};
use crate::node::Node;
use crate::tenant::{Tenant, TrainingUse};
use crate::train::declared::Plan;
use crate::train::settings;

/// Keeps what a job comes to.
pub(super) struct Kept {
    pub node: Arc<Node>,
    pub live: Arc<Live>,
    pub common: Arc<Common>,
}

impl Kept {
    fn name(&self, suffix: &str) -> Result<Name, String> {
        let stem: String = self.common.job.as_str().chars().take(MAX_NAME - suffix.len()).collect();
        format!("{stem}{suffix}").parse().map_err(|error: crate::names::BadName| error.to_string())
    }
}

impl Keeper for Kept {
    async fn epoch(&self, record: EpochRecord) -> Result<(), String> {
        self.node.jobs.add_epoch(&self.live, record).await.map_err(|error| error.to_string())
    }

    async fn checkpoint(&self, training: &Training) -> Result<(), String> {
        let file = training.to_file().map_err(|error| error.to_string())?;
        let kept = keep_checkpoint(&self.node, &self.live, &self.common.tenant, file, training).await;
        kept.map_err(|error| format!("a checkpoint could not be kept: {error}"))
    }

    async fn model(&self, suffix: &str, shared: &Shared, plan: &Plan, facts: ModelFacts) -> Result<(), String> {
        let name = self.name(suffix)?;
        let meta = Meta {
            function: Some(self.common.version),
            step: Some(facts.step),
            hyper_parameters: settings::to_json(&self.common.settings),
            metrics: facts.metrics,
            data_set: self.live.job().data,
            created_ms: Some(unix_ms()),
            input: self.common.data.as_ref().map(|data| Input::of(&data.manifest)),
            other: BTreeMap::from([("weft.job".to_owned(), self.common.job.to_string())]),
        };
        let file = shared.to_file(plan, &meta).map_err(|error| error.to_string())?;
        let (node, live, tenant, kept) =
            (self.node.clone(), self.live.clone(), self.common.tenant.clone(), name.clone());
        let put = to_the_end(async move {
            let replaces = live.job().models.contains(&kept);
            node.catalog.put_model(&tenant, kept, file, replaces).await
        });
        put.await.map_err(|error| format!("the model could not be kept: {error}"))?;
        let noted = self.node.jobs.change(&self.live, |job| {
            job.models.retain(|other| *other != name);
            job.models.push(name);
        });
        noted.await.map_err(|error| error.to_string())?;
        Ok(())
    }

    async fn forget_model(&self, suffix: &str) {
        let Ok(name) = self.name(suffix) else { return };
        let forgotten = self.node.catalog.delete_model(&self.common.tenant, name.as_str()).await;
        let noted = self.node.jobs.change(&self.live, |job| job.models.retain(|other| *other != name)).await;
        if forgotten.is_err() || noted.is_err() {
            tracing::warn!(job = %self.common.job, model = %name, "an old model of a job could not be deleted");
        }
    }

    fn charge(&self, spent: &TrainingUse) -> Result<(), String> {
        let tenant = &self.common.tenant;
        tenant.ledger.charge_training(spent);
        let limit = tenant.quota().device_seconds;
        if tenant.ledger.usage().device_seconds() > limit as f64 {
            return Err(format!("the tenant's `device_seconds` of {limit} are used up"));
        }
        Ok(())
    }
}

async fn keep_checkpoint(
    node: &Arc<Node>,
    live: &Live,
    tenant: &Tenant,
    file: Vec<u8>,
    training: &Training,
) -> Result<(), JobError> {
    let size = file.len() as u64;
    let reserved = tenant.storage.reserve(size)?;
    let pin = node.blobs.publish_bytes(file.into()).await?;
    let (epoch, step) = (training.progress.epoch, training.progress.step);
    let next = CheckpointRef { digest: pin.digest(), size, epoch, step };
    let before = live.job().checkpoint;
    match node.jobs.change(live, |job| job.checkpoint = Some(next)).await {
        Ok(_) => {}
        Err(error) => {
            pin.until_restart();
            return Err(error.into());
        }
    }
    reserved.keep();
    drop(pin);
    if let Some(before) = before {
        tenant.storage.release(before.size);
        if before.digest != next.digest {
            node.blobs.collect(&[before.digest]).await?;
        }
    }
    live.events.tell(JobEvent::Checkpoint { epoch, step, bytes: size });
    Ok(())
}
