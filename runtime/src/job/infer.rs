//! What a job's model makes of samples.

use std::sync::Arc;

use weft_core::spec::BadSpec;
use weft_gpu::{Context, Crew};

use super::apart::apart;
use super::facilities::Facilities;
use super::outputs::Outputs;
use super::workshop::split_memory;
use super::{JobError, Jobs};
use crate::dataset::Manifest;
use crate::dataset::batches::{Batch, Inputs};
use crate::dataset::manifest::{FORMAT, Split};
use crate::dataset::rows::{Element, Features};
use crate::dataset::transform;
use crate::devices::{DevicePart, TAPE_NODES};
use crate::model::Input;
use crate::tenant::{ChargedBytes, Tenant};
use crate::train::run::infer_rows;
use crate::train::worker::{Trainer, Worker, WorkerSetup};
use crate::train::{load, settings};

/// Samples of one request for inference.
const MAX_SAMPLES: usize = 4_096;
/// Samples that are inferred at once.
const INFER_BATCH: usize = 64;

impl Jobs {
    /// What a job's model makes of samples as they come, before any transform: `{"outputs": …}`, a row for each.
    pub async fn infer(
        &self,
        tenant: &Arc<Tenant>,
        name: &str,
        samples: Vec<Vec<f32>>,
    ) -> Result<ChargedBytes, JobError> {
        let job = self.roster.get(tenant.id, name)?;
        let Facilities { catalog, registry, places, devices, logs, host, .. } = &self.facilities;
        if samples.is_empty() || samples.len() > MAX_SAMPLES {
            let problem = format!("{} of them: send 1 to {MAX_SAMPLES} at once", samples.len());
            return Err(BadSpec::new("samples", problem).into());
        }
        let Some(model) = job.models.last() else { return Err(JobError::wrong(&job, "it has left no model yet")) };
        let model = catalog.model(tenant.id, model.as_str())?;
        let mut model = catalog.open_model(tenant, &model, places.opening(tenant).await?).await?;
        let Some(input) = model.meta.input.clone() else {
            return Err(JobError::wrong(&job, "its model does not say what samples it takes"));
        };
        check_samples(&input, &samples)?;
        let function = registry.ready_version(tenant, &job.version).await?;
        let (linear, bytes) = split_memory(job.shape().memory);
        let place = places.inference(tenant).await?;
        let part = devices.part(tenant, bytes as u64).await?;
        let context = Context::leased(&part.lease, Arc::new(Crew::new(host.sandbox.limits().cores)), TAPE_NODES);
        let name = job.spec.function.parse().map_err(|error| BadSpec::new("function", error))?;
        let trainer = Trainer { code: function, name, version: job.version };
        let mut setup = WorkerSetup {
            log: logs.book(tenant.id),
            job: Some(job.name.clone()),
            memory: linear,
            ..WorkerSetup::new(host, &trainer, tenant, context.clone(), job.seed)
        };
        let params: Vec<(String, String)> = job.spec.params.clone().into_iter().collect();
        let (owner, most) = (tenant.clone(), host.sandbox.limits().payload);
        let cancel = part.lease.cancel().clone();
        let charged = ChargedPart { part, tenant: tenant.clone() };
        let infer = move || async move {
            let _charged = charged;
            let rows = prepare_samples(&input, &samples)?;
            drop(samples);
            let failed = |error: &dyn std::fmt::Display| JobError::Refused(error.to_string());
            let description = Worker::describe(&setup).await.map_err(|error| failed(&error))?;
            setup.settings = settings::read(&description, &params).map_err(|error| BadSpec::new("params", error))?;
            let mut worker = Worker::start(setup).await.map_err(|error| failed(&error))?;
            if let Some(declared) = worker.declared() {
                load::load(declared, &mut model).map_err(|error| failed(&error))?;
            }
            let mut outputs = Outputs::new(owner.memory.clone(), most);
            for rows in rows.chunks(INFER_BATCH) {
                let shape: Vec<usize> = std::iter::once(rows.len()).chain(input.shape.iter().copied()).collect();
                let numbers: Vec<f32> = rows.iter().flatten().copied().collect();
                let features = context.tensor(&shape, &numbers).map_err(|error| failed(&error))?;
                let batch = Batch { features: Inputs::Dense(features), labels: None, count: rows.len() };
                let inferred = infer_rows(&mut worker, batch).await.map_err(|error| failed(&error))?;
                outputs.add(&inferred, rows.len())?;
            }
            outputs.into_json()
        };
        apart("inference", tenant, place, &cancel, infer).await
    }
}

/// A part of a device whose time is charged to its tenant, however the work on it ends.
struct ChargedPart {
    part: DevicePart,
    tenant: Arc<Tenant>,
}

impl Drop for ChargedPart {
    fn drop(&mut self) {
        self.tenant.ledger.charge_device(self.part.lease.time());
    }
}

fn features(input: &Input) -> Features {
    Features::Dense { element: Element::F32, shape: input.shape.clone() }
}

/// Whether all samples have as many numbers as the model takes.
fn check_samples(input: &Input, samples: &[Vec<f32>]) -> Result<(), BadSpec> {
    let width = features(input).width();
    let wrong = samples.iter().enumerate().find(|(_, sample)| sample.len() != width);
    wrong.map_or(Ok(()), |(number, sample)| {
        let problem = format!("sample {number} has {} numbers, and the model takes {:?}", sample.len(), input.shape);
        Err(BadSpec::new("samples", problem))
    })
}

/// Transforms samples, which fit, as those that the model was trained on.
fn prepare_samples(input: &Input, samples: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, JobError> {
    let features = features(input);
    let width = features.width();
    let manifest = Manifest {
        format: FORMAT,
        features,
        labels: None,
        class_names: Vec::new(),
        transform: input.transform,
        statistics: input.statistics.clone(),
        train: Split::default(),
        test: Split::default(),
        synthetic: None,
    };
    let prepared = transform::Prepared::new(&manifest).map_err(|error| BadSpec::new("samples", error))?;
    let transform = |sample: &Vec<f32>| {
        let mut row = vec![0.0; width];
        prepared.row(bytemuck::cast_slice(sample), &mut row);
        row
    };
    Ok(samples.iter().map(transform).collect())
}
