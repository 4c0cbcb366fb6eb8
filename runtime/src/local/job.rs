//! A job of this process's own: tried out as on a node, then run by the same engine.

use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use weft_core::cost::Prices;
use weft_core::spec::{BadSpec, JobSpec, Shape};
use weft_core::sync::ChannelKind;
use weft_gpu::{Cancel, Lease, Pool};

use crate::dataset::Manifest;
use crate::digest::Digest;
use crate::job::brief::{Brief, DataRef};
use crate::job::channel::{Channel, MemoryChannel};
use crate::job::engine::{Ending, Engine, Keeper, Origin};
use crate::job::probe::Probe;
use crate::job::team::{Halt, Lines, News, Order, Team};
use crate::job::workshop::{InstanceRules, JobData, Wanted, Workshop};
use crate::job::{Accounting, JobError, check_shards, device_and_codec};
use crate::logs::LogBook;
use crate::metrics::ExchangeCounters;
use crate::model::Model;
use crate::names::Name;
use crate::sandbox::TeamId;
use crate::tenant::Tenant;
use crate::train::worker::{FunctionHost, Trainer};

/// What is to be trained, on what, and how.
pub struct LocalJob {
    pub host: FunctionHost,
    pub trainer: Trainer,
    pub tenant: Arc<Tenant>,
    pub pool: Pool,
    pub log: Arc<LogBook>,
    pub name: Name,
    pub data: Option<JobData>,
    pub spec: JobSpec,
    pub instances: InstanceRules,
}

/// Where a job of this process is told what to do, and tells what happens.
pub struct LocalLines {
    /// Whoever drops the sender stops the job.
    pub orders: watch::Receiver<Order>,
    pub news: Box<dyn Fn(News) + Send>,
}

/// A job whose trainer was tried out.
pub struct PreparedJob {
    pub workshop: Arc<Workshop>,
    pub shape: Shape,
    leases: Vec<Vec<Lease>>,
}

/// The version of a data set.
pub fn data_version(manifest: &Manifest) -> Digest {
    Digest::of(&manifest.to_bytes())
}

impl LocalJob {
    /// Finds out whether the trainer takes the samples, and the model that it is to start from if there is one. One that
    /// has trained before needs not show that it can.
    pub async fn prepare<R: Read + Seek>(
        self,
        init_from: Option<Model<R>>,
        has_trained: bool,
    ) -> Result<PreparedJob, JobError> {
        let Self { host, trainer, tenant, pool, log, name, data, spec, instances } = self;
        let spec = spec.check()?;
        if spec.plan.is_some() {
            let problem = "nothing is planned without a node, where training costs nothing: use `weft train`, or \
                           `max_time_ms` to end it in time";
            return Err(BadSpec::new("plan", problem).into());
        }
        let (device, codec) = device_and_codec(&spec)?;
        let shape = spec.first_shape(data.as_ref().map(|data| data.manifest.train.count));
        // A worker that is replaced is still there while the next one starts.
        let most = host.sandbox.limits().trainers / 2;
        if shape.lanes() > most {
            return Err(BadSpec::new("workers", format!("{} are more than the {most} here", shape.lanes())).into());
        }
        if let Some(data) = &data {
            check_shards(&spec, &shape, data)?;
        }
        let seed = spec.words.seed.unwrap_or(0);
        let mut wanted = Wanted { shape, device, host_bytes: 0 };
        let probe = Probe {
            host: host.clone(),
            trainer: trainer.clone(),
            tenant: tenant.clone(),
            seed,
            spec: spec.clone(),
            codec,
            shape,
            instances,
            data: data.clone(),
            init_from,
            has_trained,
        };
        let probed = probe.run(&wanted.lease_function(&pool, &tenant)?).await?;
        if probed.sync.channel != ChannelKind::Memory {
            let problem = "without a node there is neither a parameter store nor a blob store: use `memory`";
            return Err(BadSpec::new("channel", problem).into());
        }
        wanted.host_bytes = probed.host.per_worker(shape.workers);
        let mut leases = Vec::new();
        for _ in 0..shape.workers {
            let mut worker = Vec::new();
            wanted.lease_worker(&pool, &tenant, &Cancel::default(), &mut worker)?;
            leases.push(worker);
        }
        let data_ref = |data: &JobData| DataRef { name: data.name.clone(), version: data_version(&data.manifest) };
        let epochs = 0..spec.words.epochs;
        let brief = Brief {
            tenant: tenant.id,
            job: name,
            run: 0,
            function: trainer.name.clone(),
            version: trainer.version,
            data: data.as_ref().map(data_ref),
            settings: probed.settings,
            trainer: probed.trainer,
            spec,
            sync: probed.sync,
            seed,
            epochs,
            host: probed.host,
        };
        let team = TeamId::next();
        let cores_per_gib = 0.0;
        let workshop =
            Workshop { brief, host, pool, trainer, tenant, log, data, device, codec, instances, team, cores_per_gib };
        Ok(PreparedJob { workshop: Arc::new(workshop), shape, leases })
    }
}

impl PreparedJob {
    /// The device that the first worker computes on.
    pub fn device(&self) -> String {
        self.leases.iter().flatten().next().map_or_else(String::new, |lease| lease.device().to_string())
    }

    /// Trains until it is over. `ready` is called when all workers are there.
    pub async fn train<K: Keeper>(
        self,
        keeper: Arc<K>,
        origin: Origin,
        lines: LocalLines,
        ready: impl FnOnce(),
    ) -> Ending {
        self.train_through(Arc::new(MemoryChannel::default()), keeper, origin, lines, ready).await
    }

    /// The same with workers that exchange what they have through this channel.
    pub async fn train_through<K: Keeper>(
        self,
        channel: Arc<dyn Channel>,
        keeper: Arc<K>,
        origin: Origin,
        lines: LocalLines,
        ready: impl FnOnce(),
    ) -> Ending {
        let Self { workshop, shape, leases } = self;
        let deadline = workshop.spec().max_time.map(|span| Instant::now() + span);
        // Nobody kills a worker here.
        let (_kills, killed) = mpsc::unbounded_channel();
        let lines = Lines { orders: lines.orders, kills: killed, news: lines.news };
        let train = async {
            let started = Team::start(workshop.clone(), channel.clone(), shape, leases, lines, deadline).await;
            let (team, declaration) = started?;
            ready();
            // What is used on one's own machine costs nothing, and no node counts what goes through the memory of this process.
            let accounting =
                Accounting::new(Prices::default(), ExchangeCounters::default(), workshop.brief.sync.channel);
            let engine = Engine::new(workshop, channel, team, *declaration, keeper, accounting, origin)?;
            Ok::<Ending, Halt>(engine.run().await)
        };
        train.await.unwrap_or_else(Ending::Halted)
    }
}
