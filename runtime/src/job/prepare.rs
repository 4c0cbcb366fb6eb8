//! What a job needs is found, and tried out: then it is known where its workers run, and through what they exchange.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weft_core::spec::{BadSpec, CheckedSpec, Shape};
use weft_core::sync::ChannelKind;
use weft_gpu::pool::Wish;
use weft_gpu::{Codec, Lease, Pool};

use super::brief::{Brief, DataRef};
use super::channel::{BlobsChannel, Channel, MemoryChannel, StoreChannel};
use super::live::Live;
use super::probe::Probe;
use super::record::Job;
use super::room::check_shards;
use super::workshop::{InstanceRules, JobData, Workshop};
use super::{JobError, Jobs};
use crate::catalog::BlobFile;
use crate::digest::Digest;
use crate::model::Model;
use crate::names::Name;
use crate::params::Bucket;
use crate::sandbox::TeamId;
use crate::tenant::Tenant;
use crate::train::worker::Trainer;

/// All that a job needs, found, and not tried out yet.
pub(super) struct Found {
    pub trainer: Trainer,
    pub data: Option<JobData>,
    pub init_from: Option<Model<BlobFile>>,
    pub pool: Pool,
    pub spec: CheckedSpec,
    pub device: Wish,
    pub codec: Codec,
}

/// Where a job wants to compute, and how what its workers send is encoded.
pub(crate) fn device_and_codec(spec: &CheckedSpec) -> Result<(Wish, Codec), BadSpec> {
    let device = spec.words.device.parse().map_err(|error| BadSpec::new("device", error))?;
    let codec = spec.codec().parse().map_err(|error| BadSpec::new("codec", error))?;
    Ok((device, codec))
}

impl Jobs {
    /// Finds everything that a job needs. None of its code runs.
    pub(super) async fn find(&self, tenant: &Tenant, job: &Job) -> Result<Found, JobError> {
        let (words, spec) = (&job.spec, job.spec.check()?);
        let (device, codec) = device_and_codec(&spec)?;
        let function = self.facilities.registry.ready_version(tenant, &job.version).await?;
        if !function.is_trainer() {
            return Err(BadSpec::new("function", "it answers requests and does not train; see `weft invoke`").into());
        }
        let name: Name = words.function.parse().map_err(|error| BadSpec::new("function", error))?;
        let data = match (&words.dataset, job.data) {
            (Some(dataset), Some(version)) => Some(self.job_data(tenant, dataset, &version).await?),
            _ => None,
        };
        let grown_from = job.following.as_ref().and_then(|following| following.grown_from);
        let data = match (data, grown_from, &words.follow) {
            (Some(data), Some(before), Some(follow)) => {
                let grown = data.grown(before.samples, follow.replay, job.seed);
                Some(grown.map_err(|error| JobError::Refused(format!("its data set has not grown as said: {error}")))?)
            }
            (data, ..) => data,
        };
        // How much comes with a version is not the job's to choose: a batch may be more than that.
        if let Some(data) = data.as_ref().filter(|data| data.growth.is_none()) {
            let first = || spec.first_shape(Some(data.manifest.train.count));
            let shape = job.shape.unwrap_or_else(first);
            check_shards(&spec, &shape, data)?;
            if words.workers.is_range() {
                check_shards(&spec, &Shape { workers: words.workers.most, ..shape }, data)?;
            }
        }
        let init_from = match &words.init_from {
            Some(model) if job.checkpoint.is_none() => {
                let model = self.facilities.catalog.model(tenant.id, model)?;
                let place = self.facilities.places.opening(tenant).await?;
                Some(self.facilities.catalog.open_model(tenant, &model, place).await?)
            }
            _ => None,
        };
        let pool = self.facilities.devices.open().await?.clone();
        let trainer = Trainer { code: function, name, version: job.version };
        Ok(Found { trainer, data, init_from, pool, spec, device, codec })
    }

    /// Tries a job out on a lease. For a thread that nobody else needs.
    pub(super) async fn try_out(
        &self,
        tenant: &Arc<Tenant>,
        job: &Job,
        found: Found,
        lease: &Lease,
    ) -> Result<Arc<Workshop>, JobError> {
        let Found { trainer, data, init_from, pool, spec, device, codec } = found;
        let host = self.facilities.host.clone();
        let probe = Probe {
            host: host.clone(),
            trainer: trainer.clone(),
            tenant: tenant.clone(),
            seed: job.seed,
            spec: spec.clone(),
            codec,
            shape: job.shape(),
            instances: InstanceRules::default(),
            data: data.clone(),
            init_from,
            has_trained: job.checkpoint.is_some(),
        };
        let probed = probe.run(lease).await?;
        let brief = Brief {
            tenant: tenant.id,
            job: job.name.clone(),
            run: job.starts,
            function: trainer.name.clone(),
            version: job.version,
            data: job.data.zip(job.spec.dataset.clone()).map(|(version, name)| DataRef { name, version }),
            settings: probed.settings,
            trainer: probed.trainer,
            spec,
            sync: probed.sync,
            seed: job.seed,
            epochs: job.epochs(),
            host: probed.host,
        };
        Ok(Arc::new(Workshop {
            brief,
            host,
            pool,
            trainer,
            tenant: tenant.clone(),
            log: self.facilities.logs.book(tenant.id),
            data,
            device,
            codec,
            instances: InstanceRules::default(),
            team: TeamId::next(),
            cores_per_gib: self.facilities.rules.cores_per_gib,
        }))
    }

    /// Through what the workers of a job exchange what they have, in one run of it. What an earlier run has left is
    /// deleted.
    pub(super) async fn open_channel(&self, live: &Live, workshop: &Workshop) -> Result<Arc<dyn Channel>, JobError> {
        let (brief, tenant) = (&workshop.brief, &workshop.tenant);
        // A job may run several times between two starts of its node.
        let run = (brief.run << 32) + live.runs.fetch_add(1, Relaxed);
        let channel: Arc<dyn Channel> = match brief.sync.channel {
            ChannelKind::Memory => return Ok(Arc::new(MemoryChannel::default())),
            ChannelKind::Store => {
                let bucket = Bucket::of(self.facilities.params.clone(), tenant, Some(brief.job.clone()));
                Arc::new(StoreChannel::new(bucket, run))
            }
            ChannelKind::Blobs => {
                let scratch = self.facilities.blobs.scratch(&format!("{}/{}", tenant.id.key(), brief.job));
                Arc::new(BlobsChannel::new(scratch, tenant.storage.clone(), run, brief.host.per_worker(1)))
            }
        };
        channel.clear().await?;
        Ok(channel)
    }

    async fn job_data(&self, tenant: &Tenant, dataset: &str, version: &Digest) -> Result<JobData, JobError> {
        let place = self.facilities.places.opening(tenant).await?;
        let size = self.facilities.blobs.size(version).await?;
        let read = self.facilities.catalog.read_manifest(tenant, version, size, Some(place)).await?;
        Ok(JobData {
            name: dataset.to_owned(),
            manifest: Arc::new(read.manifest),
            charge: Some(Arc::new(read.charge)),
            blocks: self.facilities.blocks.clone(),
            growth: None,
        })
    }
}
