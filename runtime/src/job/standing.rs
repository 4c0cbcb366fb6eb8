//! Standing orders: a data set that has grown starts a job by itself.
//!
//! An order is a job's words, kept with a data set. What it starts and when is decided in [`weft_core::standing`]; here is
//! who looks: whenever a data set has changed, and whenever a job is over. A job that an order started is known by its
//! idempotency key, so that a node that is killed between starting it and noting that finds it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use weft_core::spec::{BadSpec, JobSpec};
use weft_core::standing::{DataSet, Next, next};

use super::record::Job;
use super::{JobError, Jobs};
use crate::catalog::CatalogError;
use crate::clock::unix_ms;
use crate::digest::Digest;
use crate::locks::{Lock, SharedLock};
use crate::logs::one_line;
use crate::meta::{Batch, MetaError, Metadata, Record};
use crate::names::{MAX_NAME, Name};
use crate::tenant::{Charge, OverLimit, Tenant, TenantId, Tenants};
use crate::text;

/// Bytes of one order's words.
const MAX_ORDER: usize = 16 << 10;
/// What an order takes beside its words.
const OVERHEAD: u64 = 1 << 10;
/// How soon an order is tried again whose job could not be started for a reason that passes.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// A job that is started whenever a data set has grown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandingOrder {
    pub tenant: TenantId,
    pub dataset: Name,
    /// When the data set was made: a later one of that name is another.
    pub dataset_created_ms: u64,
    pub created_ms: u64,
    pub spec: JobSpec,
    /// The version that its latest job was started for, or that was there when the order was given.
    pub seen: Digest,
    /// The latest job that it has started.
    #[serde(default)]
    pub job: Option<Name>,
    /// How many it has started.
    #[serde(default)]
    pub started: u64,
    /// Why none was started for the version that it has seen; empty if one was.
    #[serde(default)]
    pub problem: String,
}

impl Record for StandingOrder {
    const TABLE: &'static str = "standing_orders";

    fn key(&self) -> String {
        format!("{}/{}", self.tenant.key(), self.dataset)
    }
}

impl StandingOrder {
    /// What the idempotency keys of its jobs begin with.
    fn key_prefix(&self) -> String {
        format!("on-append:{}:{}:", self.dataset, self.created_ms)
    }

    /// The same, beside the orders of other tenants.
    fn key_prefix_of_tenant(&self) -> String {
        format!("{}/{}", self.tenant.key(), self.key_prefix())
    }

    fn bytes(&self) -> u64 {
        serde_json::to_vec(self).map_or(0, |record| record.len() as u64) + OVERHEAD
    }

    /// The words of its job for a version, whose place among the data set's is `number`, counted from 1.
    fn spec_of(&self, number: usize) -> JobSpec {
        let named = |name: &String| {
            let suffix = format!("-v{number}");
            let stem: String = name.chars().take(MAX_NAME.saturating_sub(suffix.len())).collect();
            format!("{}{suffix}", stem.trim_end_matches('-'))
        };
        let name = self.spec.name.as_ref().map(named);
        JobSpec { name, dataset: Some(self.dataset.to_string()), ..self.spec.clone() }
    }
}

/// An order, and what it takes of its tenant's `job_bytes`.
struct Kept {
    order: Arc<StandingOrder>,
    _charge: Charge,
}

/// All orders of a node, in memory as on disk.
#[derive(Default)]
pub struct StandingOrders {
    shown: RwLock<HashMap<TenantId, BTreeMap<String, Kept>>>,
    /// Has them looked at.
    pub(super) wake: Arc<Notify>,
    /// Orders whose jobs are being started.
    starting: Mutex<HashSet<String>>,
}

impl StandingOrders {
    /// The orders on disk, charged to their tenants whatever the limits are by now.
    pub fn load(metadata: &Metadata, tenants: &Tenants) -> Result<Self, MetaError> {
        let orders = Self::default();
        for order in metadata.all::<StandingOrder>()? {
            if let Some(owner) = tenants.by_id(order.tenant) {
                let charge = Charge::whatever_the_limit(owner.jobs.clone(), order.bytes());
                orders.show(order, charge);
            }
        }
        Ok(orders)
    }

    /// Has whoever tells of jobs that are over wake who looks at orders.
    pub(super) fn woken_by(self, wake: Arc<Notify>) -> Self {
        Self { wake, ..self }
    }

    fn show(&self, order: StandingOrder, charge: Charge) -> Arc<StandingOrder> {
        let order = Arc::new(order);
        let kept = Kept { order: order.clone(), _charge: charge };
        self.shown.writing().entry(order.tenant).or_default().insert(order.dataset.to_string(), kept);
        order
    }

    pub fn get(&self, tenant: TenantId, dataset: &str) -> Result<Arc<StandingOrder>, JobError> {
        let shown = self.shown.reading();
        let kept = shown.get(&tenant).and_then(|orders| orders.get(dataset));
        kept.map(|kept| kept.order.clone()).ok_or_else(|| {
            let (what, name) = ("standing order for data set", dataset.chars().take(80).collect());
            CatalogError::NotFound { what, name }.into()
        })
    }

    /// A tenant's orders, by data set.
    pub fn list(&self, tenant: TenantId) -> Vec<Arc<StandingOrder>> {
        let shown = self.shown.reading();
        shown.get(&tenant).map(|orders| orders.values().map(|kept| kept.order.clone()).collect()).unwrap_or_default()
    }

    fn all(&self) -> Vec<Arc<StandingOrder>> {
        self.shown.reading().values().flat_map(BTreeMap::values).map(|kept| kept.order.clone()).collect()
    }

    /// The records of a tenant as deletions, for the transaction that deletes the tenant.
    pub fn deletion_of(&self, tenant: TenantId) -> Batch {
        self.list(tenant).iter().fold(Batch::default(), |batch, order| batch.delete::<StandingOrder>(order.key()))
    }

    /// Forgets a tenant whose records are gone.
    pub fn forget(&self, tenant: TenantId) {
        self.shown.writing().remove(&tenant);
    }

    fn take_away(&self, order: &StandingOrder) {
        if let Some(orders) = self.shown.writing().get_mut(&order.tenant) {
            orders.remove(order.dataset.as_str());
        }
    }
}

/// Looks at all orders whenever something has changed, for as long as there is a node.
pub(crate) async fn keep_orders(jobs: Weak<Jobs>) {
    let Some((wake, mut changes)) =
        jobs.upgrade().map(|jobs| (jobs.standing.wake.clone(), jobs.facilities.catalog.changes()))
    else {
        return;
    };
    loop {
        {
            let Some(jobs) = jobs.upgrade() else { return };
            changes.borrow_and_update();
            jobs.look_at_orders().await;
        }
        tokio::select! {
            () = wake.notified() => {}
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// An order whose job is being started, until this is dropped; then it is looked at again.
struct Starting {
    jobs: Arc<Jobs>,
    order: Arc<StandingOrder>,
}

impl Starting {
    /// Nothing if its job is being started already.
    fn of(jobs: &Arc<Jobs>, order: &Arc<StandingOrder>) -> Option<Self> {
        let is_new = jobs.standing.starting.locked().insert(order.key_prefix_of_tenant());
        is_new.then(|| Self { jobs: jobs.clone(), order: order.clone() })
    }
}

impl Starting {
    /// Starts the order's job for a version. What is in the way and passes is waited for.
    async fn start(self, tenant: &Arc<Tenant>, version: Digest, number: usize) {
        let Self { jobs, order } = &self;
        let key = format!("{}{}", order.key_prefix(), version.hex());
        match jobs.submit(tenant, order.spec_of(number), Some(&key)).await {
            Ok((job, _)) => {
                jobs.note(order, |order| {
                    (order.job, order.seen) = (Some(job.name.clone()), job.data.unwrap_or(version));
                    order.started += 1;
                    order.problem.clear();
                })
                .await;
            }
            Err(error) => {
                let passes = error.passes();
                tracing::warn!(error = %one_line(&error.to_string()), dataset = %order.dataset, "an order's job was not started");
                jobs.note(order, |order| {
                    order.problem = text::cut(error.to_string(), text::MOST_ERROR);
                    // What does not pass is tried again with the next version.
                    if !passes {
                        order.seen = version;
                    }
                })
                .await;
                if passes {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.jobs.standing.starting.locked().remove(&self.order.key_prefix_of_tenant());
        self.jobs.standing.wake.notify_one();
    }
}

impl Jobs {
    /// Has a data set start a job whenever it has grown, in place of what it did before. The words are tried out as if they
    /// were submitted now.
    pub async fn give_order(
        self: &Arc<Self>,
        tenant: &Arc<Tenant>,
        dataset: Name,
        mut spec: JobSpec,
    ) -> Result<(Arc<StandingOrder>, bool), JobError> {
        let of = self.facilities.catalog.dataset(tenant.id, dataset.as_str())?;
        if spec.dataset.as_ref().is_some_and(|other| *other != dataset.as_str()) {
            let problem = format!("the order is for `{dataset}`: leave it out");
            return Err(BadSpec::new("dataset", problem).into());
        }
        if spec.follow.is_some() {
            let problem = "an order starts a job for what is new, and one that follows its data set needs no order";
            return Err(BadSpec::new("follow", problem).into());
        }
        spec.dataset = Some(dataset.to_string());
        let size = serde_json::to_vec(&spec).map_or(usize::MAX, |words| words.len());
        if size > MAX_ORDER {
            let what = format!("an order of {size} bytes");
            return Err(JobError::Quota { name: "standing order", limit: MAX_ORDER as u64, what });
        }
        if let Some(name) = &spec.name {
            name.parse::<Name>().map_err(|error| BadSpec::new("name", error))?;
        }
        self.try_words(tenant, JobSpec { name: None, ..spec.clone() }).await?;
        let _changing = self.roster.pause().await;
        if tenant.is_deleted() {
            return Err(JobError::TenantDeleted);
        }
        let seen = of.latest().map(|version| version.digest).ok_or_else(|| no_version(&dataset))?;
        let order = StandingOrder {
            tenant: tenant.id,
            dataset,
            dataset_created_ms: of.created_ms,
            created_ms: unix_ms(),
            spec,
            seen,
            job: None,
            started: 0,
            problem: String::new(),
        };
        let is_new = self.standing.get(tenant.id, order.dataset.as_str()).is_err();
        let mut charge = Charge::none(tenant.jobs.clone());
        charge.grow(order.bytes()).map_err(|OverLimit { name, limit, .. }| JobError::Quota {
            name,
            limit,
            what: "what is known of another standing order".to_owned(),
        })?;
        self.roster.metadata.commit(Batch::default().put(&order)?).await?;
        let order = self.standing.show(order, charge);
        // An append that came while it was tried out.
        self.standing.wake.notify_one();
        Ok((order, is_new))
    }

    /// Takes an order back. Its jobs stay.
    pub async fn take_order_back(&self, tenant: &Tenant, dataset: &str) -> Result<(), JobError> {
        let _changing = self.roster.pause().await;
        self.forget_order(&*self.standing.get(tenant.id, dataset)?).await
    }

    /// Forgets an order. Changes are held off by the caller.
    async fn forget_order(&self, order: &StandingOrder) -> Result<(), JobError> {
        self.roster.metadata.commit(Batch::default().delete::<StandingOrder>(order.key())).await?;
        self.standing.take_away(order);
        Ok(())
    }

    async fn look_at_orders(self: &Arc<Self>) {
        for order in self.standing.all() {
            if self.is_stopping() {
                return;
            }
            if let Some(tenant) = self.facilities.tenants.by_id(order.tenant) {
                self.look_at_order(&tenant, &order).await;
            }
        }
    }

    async fn look_at_order(self: &Arc<Self>, tenant: &Arc<Tenant>, order: &Arc<StandingOrder>) {
        // Whoever starts its job notes that, and has it looked at again.
        if self.standing.starting.locked().contains(&order.key_prefix_of_tenant()) {
            return;
        }
        let dataset = self.facilities.catalog.dataset(tenant.id, order.dataset.as_str()).ok();
        let dataset = dataset.filter(|dataset| dataset.created_ms == order.dataset_created_ms);
        let latest = dataset.as_ref().and_then(|dataset| dataset.latest()).map(|version| version.digest);
        let prefix = order.key_prefix();
        let is_own = |job: &Arc<Job>| job.idempotency.as_ref().is_some_and(|(key, _)| key.starts_with(&prefix));
        let jobs: Vec<Arc<Job>> = self.roster.list(tenant.id).into_iter().filter(is_own).collect();
        let trains = jobs.iter().any(|job| !job.state.is_over());
        // One that was started, and not noted before the node died.
        let unknown = jobs.iter().find(|job| latest.is_some() && job.data == latest && latest != Some(order.seen));
        if let (Some(job), Some(seen)) = (unknown, latest) {
            let name = job.name.clone();
            self.note(order, |order| {
                (order.job, order.seen) = (Some(name), seen);
                order.started += 1;
            })
            .await;
            return;
        }
        match next(order.seen, trains, latest.map_or(DataSet::Gone, DataSet::Latest)) {
            Next::Nothing => {}
            Next::Forget => {
                let _changing = self.roster.pause().await;
                // Another may have been given meanwhile, for another data set of that name.
                let now = self.standing.get(tenant.id, order.dataset.as_str()).ok();
                let is_same = now.is_some_and(|now| now.created_ms == order.created_ms);
                if is_same && let Err(error) = self.forget_order(order).await {
                    tracing::warn!(%error, dataset = %order.dataset, "an order for a data set that is gone stays for now");
                }
            }
            Next::Start(version) => {
                let Some(starting) = Starting::of(self, order) else { return };
                let (tenant, number) = (tenant.clone(), dataset.map_or(0, |dataset| dataset.versions.len()));
                // Apart: a trainer may take its time to be tried out, and others do not wait for it.
                tokio::spawn(async move { starting.start(&tenant, version, number).await });
            }
        }
    }

    /// Changes what is known of an order, unless it was taken back or given anew meanwhile.
    async fn note(&self, order: &StandingOrder, change: impl FnOnce(&mut StandingOrder)) {
        let _changing = self.roster.pause().await;
        let Ok(now) = self.standing.get(order.tenant, order.dataset.as_str()) else { return };
        let Some(owner) = self.facilities.tenants.by_id(order.tenant) else { return };
        if now.created_ms != order.created_ms {
            return;
        }
        let mut changed = StandingOrder::clone(&now);
        change(&mut changed);
        let written = match Batch::default().put(&changed) {
            Ok(batch) => self.roster.metadata.commit(batch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::error!(%error, dataset = %order.dataset, "what an order has started could not be written; it is found again by its job");
        }
        let charge = Charge::whatever_the_limit(owner.jobs.clone(), changed.bytes());
        self.standing.show(changed, charge);
    }
}

fn no_version(dataset: &Name) -> JobError {
    CatalogError::NotFound { what: "version of data set", name: dataset.to_string() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: Option<&str>) -> StandingOrder {
        let spec = JobSpec { name: name.map(str::to_owned), ..JobSpec::new("f", None) };
        StandingOrder {
            tenant: TenantId(1),
            dataset: "digits".parse().unwrap(),
            dataset_created_ms: 1,
            created_ms: 2,
            spec,
            seen: Digest::of(b""),
            job: None,
            started: 0,
            problem: String::new(),
        }
    }

    #[test]
    fn a_job_is_named_after_the_order_and_the_version() {
        assert_eq!(order(None).spec_of(3).name, None);
        assert_eq!(order(Some("nightly")).spec_of(3).name.as_deref(), Some("nightly-v3"));
        let long = order(Some(&"x".repeat(MAX_NAME))).spec_of(12).name.unwrap();
        assert!(long.len() == MAX_NAME && long.ends_with("x-v12") && long.parse::<Name>().is_ok());
        assert_eq!(order(None).spec_of(3).dataset.as_deref(), Some("digits"));
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = order(Some("nightly"));
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<StandingOrder>(&text).unwrap(), order);
    }
}
