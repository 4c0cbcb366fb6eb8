//! Does this trainer take this data set, with these parameters? Tried out on a few samples: before a job is queued, where
//! there is room for that, or else before its workers start.

use std::io::{Read, Seek};
use std::num::NonZeroU32;
use std::sync::Arc;

use weft_core::spec::{BadSpec, CheckedSpec, Shape, TrainerKind};
use weft_core::sync::Sync;
use weft_gpu::{Codec, Context, Crew, Lease};

use super::JobError;
use super::host_memory::{HostMemory, host_memory};
use super::workshop::{InstanceRules, JobData, split_memory};
use crate::dataset::batches::{self, Assembler, Batch, Source, Subset};
use crate::dataset::rows::{Features, Labels};
use crate::dataset::shard::Plan as ShardPlan;
use crate::devices::TAPE_NODES;
use crate::host::bindings::weft::train::training::Traits;
use crate::host::data::StepInfo;
use crate::model::Model;
use crate::sandbox::InvokeError;
use crate::tenant::Tenant;
use crate::text;
use crate::train::declared::{OptimizerChanges, Plan, Role};
use crate::train::load;
use crate::train::settings::{self, Settings};
use crate::train::worker::{FunctionHost, Trainer, Worker, WorkerSetup};

/// Samples that are tried out.
const SAMPLES: NonZeroU32 = NonZeroU32::new(2).unwrap();

/// What is tried out.
pub struct Probe<R> {
    pub host: FunctionHost,
    pub trainer: Trainer,
    pub tenant: Arc<Tenant>,
    pub seed: u64,
    pub spec: CheckedSpec,
    pub codec: Codec,
    pub shape: Shape,
    pub instances: InstanceRules,
    pub data: Option<JobData>,
    pub init_from: Option<Model<R>>,
    /// Whether it has done steps before: then it needs not show that it can.
    pub has_trained: bool,
}

/// What was found out.
pub struct Probed {
    pub settings: Settings,
    pub trainer: TrainerKind,
    pub sync: Sync,
    /// The host's memory for copies of the model.
    pub host: HostMemory,
}

impl<R: Read + Seek> Probe<R> {
    /// For a thread that nobody else needs: kernels do not wait. What the trainer says here is not kept: the workers say
    /// it again.
    pub async fn run(self, lease: &Lease) -> Result<Probed, JobError> {
        let (linear, _) = split_memory(self.shape.memory);
        let context = Context::leased(lease, Arc::new(Crew::new(1)), TAPE_NODES);
        let words = &self.spec.words;
        let mut setup = WorkerSetup {
            memory: self.instances.linear.unwrap_or(linear),
            fresh: self.instances.fresh,
            optimizer: OptimizerChanges { replaced: words.optimizer, ..OptimizerChanges::default() },
            ..WorkerSetup::new(&self.host, &self.trainer, &self.tenant, context.clone(), self.seed)
        };
        let description = Worker::describe(&setup).await.map_err(|error| refused("describe", &error))?;
        let traits = description.traits;
        let params: Vec<(String, String)> = words.params.clone().into_iter().collect();
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
        let trainer = TrainerKind {
            counts,
            convex: traits.contains(Traits::CONVEX),
            updates: traits.contains(Traits::UPDATES),
            makes_data: traits.contains(Traits::MAKES_DATA),
        };
        let sync = self.spec.sync(trainer)?;
        if words.optimizer.is_some() && declared.plan().optimizer.is_none() {
            return Err(BadSpec::new("optimizer", "the trainer declares none that could be replaced").into());
        }
        check_unpenalised(&sync, declared.plan())?;
        let host = host_memory(declared, &sync, self.codec, self.shape.fan_out);
        if let Some(model) = &self.init_from {
            load::check(declared.plan(), model).map_err(|error| BadSpec::new("init_from", error))?;
        }
        if let Some(data) = self.data.as_ref().filter(|_| !self.has_trained) {
            let batch = sample(data, &context)?;
            let info = StepInfo { workers: 1, rate: words.lr, ..StepInfo::default() };
            let stepped = worker.step(info, Some(batch)).await;
            stepped.map_err(|error| unfit(&data.name, data, &error))?;
        }
        Ok(Probed { settings, trainer, sync, host })
    }
}

/// Refuses names of weights that there are none of.
fn check_unpenalised(sync: &Sync, plan: &Plan) -> Result<(), BadSpec> {
    let weights = plan.places(Role::Weight);
    let is_declared = |name: &String| weights.iter().any(|(declaration, _)| declaration.name == *name);
    match sync.unpenalised.iter().find(|name| !is_declared(name)) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<String> = weights.iter().map(|(it, _)| format!("`{}`", it.name)).collect();
            let problem = format!("the trainer declares no weights `{unknown}`: there are {}", known.join(", "));
            Err(BadSpec::new("unpenalised", text::cut(problem, text::MOST_ERROR)))
        }
    }
}

/// The first samples, one of them with the last class that there is.
fn sample(data: &JobData, context: &Context) -> Result<Batch, JobError> {
    let source =
        Source { name: &data.name, manifest: &data.manifest, part: Subset::Train, blocks: data.blocks.clone() };
    let plan = ShardPlan { shuffle: false, ..ShardPlan::default() };
    let picks = data.growth.as_ref().map(|growth| growth.picks().clone());
    let options = batches::Options { picks, ..batches::Options::new(plan, SAMPLES) };
    let refused = |error: &dyn std::fmt::Display| JobError::Refused(error.to_string());
    let assembler = Assembler::new(source, options, context);
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
    judged(error, format!("the trainer's `{what}` failed: {error}"))
}

/// What a call's failure means for the job.
fn judged(error: &InvokeError, text: String) -> JobError {
    match (error.is_the_nodes_fault(), error.is_out_of_memory()) {
        (true, _) => JobError::Passing(text),
        (false, true) => JobError::OutOfMemory(text),
        (false, false) => JobError::Refused(text),
    }
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
    judged(error, format!("the trainer does not take data set `{name}` ({features}, {labels}): {error}"))
}
