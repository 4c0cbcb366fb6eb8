//! Does this trainer take this data set, with these parameters? Tried out on a few samples: before a job is queued, where
//! there is room for that, or else before its workers start.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use weft_gpu::{Context, Crew, Lease};

use super::JobError;
use super::common::{JobData, split_memory};
use super::model::{GlobalModel, host_bytes};
use super::spec::{BadSpec, JobSpec};
use crate::catalog::BlobFile;
use crate::dataset::batches::{self, Assembler, Batch, Part, Source};
use crate::dataset::rows::{Features, Labels};
use crate::dataset::shard::Plan as ShardPlan;
use crate::devices::TAPE_NODES;
use crate::digest::Digest;
use crate::host::bindings::weft::train::training::{Setting, Traits};
use crate::host::data::Place;
use crate::logs::LogBook;
use crate::model::Model;
use crate::names::Name;
use crate::sandbox::{InvokeError, Loaded, Sandbox};
use crate::tenant::Tenant;
use crate::train::settings;
use crate::train::worker::{Worker, WorkerSetup};

/// Samples that are tried out.
const SAMPLES: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// What is tried out.
pub struct Probe {
    pub sandbox: Arc<Sandbox>,
    pub function: Arc<Loaded>,
    pub name: Name,
    pub version: Digest,
    pub tenant: Arc<Tenant>,
    pub invocations: Arc<AtomicU64>,
    pub seed: u64,
    pub spec: JobSpec,
    pub data: Option<JobData>,
    pub init_from: Option<Model<BlobFile>>,
    /// Whether it has done steps before: then it needs not show that it can.
    pub has_trained: bool,
}

/// What was found out.
pub struct Probed {
    pub settings: Vec<Setting>,
    pub traits: Traits,
    /// Whether it counts statistics.
    pub counts: bool,
    /// The host's memory that each worker takes for copies of the model.
    pub host_bytes: u64,
}

impl Probe {
    /// For a thread that nobody else needs: kernels do not wait.
    pub async fn run(mut self, lease: &Lease) -> Result<Probed, JobError> {
        let (linear, _) = split_memory(self.spec.memory);
        let context = Context::leased(lease, Arc::new(Crew::new(1)), TAPE_NODES);
        let mut setup = WorkerSetup {
            sandbox: self.sandbox.clone(),
            function: self.function.clone(),
            name: self.name.clone(),
            version: self.version,
            tenant: self.tenant.clone(),
            share: self.tenant.share.clone(),
            // What is said here is said again by the workers.
            log: Arc::<LogBook>::default(),
            job: None,
            context: context.clone(),
            seed: self.seed,
            settings: Vec::new(),
            memory: linear,
            invocations: self.invocations.clone(),
            stopping: Arc::new(AtomicBool::new(false)),
            fresh: false,
        };
        let description = Worker::describe(&setup).await.map_err(|error| refused("describe", &error))?;
        let traits = description.traits;
        let params: Vec<(String, String)> = self.spec.params.clone().into_iter().collect();
        setup.settings = settings::read(&description, &params).map_err(|error| BadSpec::new("params", error))?;
        match (&self.data, traits.contains(Traits::MAKES_DATA)) {
            (None, false) => return Err(BadSpec::new("dataset", "the trainer needs one").into()),
            (Some(_), true) => return Err(BadSpec::new("dataset", "the trainer makes its own data").into()),
            _ => {}
        }
        let settings = setup.settings.clone();
        let mut worker = Worker::start(setup).await.map_err(|error| refused("init", &error))?;
        let Some(declared) = worker.declared() else {
            return Err(JobError::Refused("the trainer declares nothing".to_owned()));
        };
        let counts = declared.plan().has_statistics();
        if counts && declared.plan().optimizer.is_some() {
            let text = "the trainer declares both statistics and an optimizer: which of them makes the model?";
            return Err(JobError::Refused(text.to_owned()));
        }
        if counts && self.spec.fan_out > 1 {
            return Err(
                BadSpec::new("fan_out", "the trainer counts statistics, and has no gradients to average").into()
            );
        }
        let host_bytes = host_bytes(declared, &self.spec);
        if let Some(model) = &mut self.init_from {
            let plan = declared.plan().clone();
            let mut shared = GlobalModel::read(declared).map_err(|error| JobError::Refused(error.to_string()))?;
            shared.take(&plan, model).map_err(|error| BadSpec::new("init_from", error))?;
        }
        if let Some(data) = self.data.as_ref().filter(|_| !self.has_trained) {
            let batch = sample(data, &context)?;
            let place = Place { workers: 1, rate: self.spec.lr, ..Place::default() };
            let stepped = worker.step(place, Some(batch)).await;
            stepped.map_err(|error| unfit(&data.name, data, &error))?;
        }
        Ok(Probed { settings, traits, counts, host_bytes })
    }
}

/// The first samples, one of them with the last class that there is.
fn sample(data: &JobData, context: &Context) -> Result<Batch, JobError> {
    let source = Source { name: &data.name, manifest: &data.manifest, part: Part::Train, blocks: data.blocks.clone() };
    let plan = ShardPlan { shuffle: false, ..ShardPlan::default() };
    let refused = |error: &dyn std::fmt::Display| JobError::Refused(error.to_string());
    let assembler = Assembler::new(source, batches::Options::new(plan, SAMPLES), context);
    let first = assembler.map_err(|error| refused(&error))?.next();
    let batch = first.ok_or_else(|| BadSpec::new("dataset", "it has no samples to train on"))?;
    let batch = batch.map_err(|error| refused(&error))?;
    if let (Some(Labels::Class), Some(labels)) = (data.manifest.labels, &batch.labels)
        && let Some(last) = data.manifest.classes().checked_sub(1)
    {
        let last = i32::try_from(last).unwrap_or(i32::MAX);
        labels.write(0, &last.to_le_bytes()).map_err(|error| refused(&error))?;
    }
    Ok(batch)
}

fn refused(what: &str, error: &InvokeError) -> JobError {
    let text = format!("the trainer's `{what}` failed: {error}");
    if error.is_the_nodes_fault() { JobError::Passing(text) } else { JobError::Refused(text) }
}

fn unfit(name: &str, data: &JobData, error: &InvokeError) -> JobError {
    let features = match &data.manifest.features {
        Features::Dense { shape, .. } => format!("samples of {shape:?}"),
        Features::Sparse { columns } => format!("sparse samples of {columns} columns"),
    };
    let labels = match (data.manifest.labels, data.manifest.classes()) {
        (None, _) => "no labels".to_owned(),
        (Some(_), 0) => "values as labels".to_owned(),
        (Some(_), classes) => format!("{classes} classes"),
    };
    let text = format!("the trainer does not take data set `{name}` ({features}, {labels}): {error}");
    if error.is_the_nodes_fault() { JobError::Passing(text) } else { JobError::Refused(text) }
}
