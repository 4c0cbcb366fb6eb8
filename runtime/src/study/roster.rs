//! All studies of a node, in memory as on disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};

use super::StudyError;
use super::live::LiveStudy;
use super::record::{KeptEvent, KeptTrial, Row, StudyRecord, part_key};
use crate::locks::{Lock, SharedLock};
use crate::meta::{Batch, MetaError, Metadata};
use crate::names::Name;
use crate::tenant::{Charge, OverLimit, Tenant, TenantId, Tenants};
use weft_core::tune::study::Event;

type Things = HashMap<TenantId, BTreeMap<String, Arc<LiveStudy>>>;

pub struct StudyRoster {
    pub(super) metadata: Arc<Metadata>,
    shown: RwLock<Things>,
    /// What studies that are not over were told, until their drivers take it.
    found: Mutex<HashMap<(TenantId, Name), Vec<Event>>>,
    /// One change of which studies there are at a time; whoever writes what a study was told holds it for reading.
    changing: Arc<tokio::sync::RwLock<()>>,
}

impl StudyRoster {
    /// The studies on disk. What is known of them is charged to their tenants, whatever the limits are by now.
    pub fn load(metadata: Arc<Metadata>, tenants: &Tenants) -> Result<Self, MetaError> {
        let mut rows: HashMap<(TenantId, Name), Vec<Row>> = HashMap::new();
        for kept in metadata.all::<KeptTrial>()? {
            rows.entry((kept.tenant, kept.study)).or_default().push(kept.row);
        }
        let mut told: HashMap<(TenantId, Name), Vec<(u64, Event)>> = HashMap::new();
        for kept in metadata.all::<KeptEvent>()? {
            told.entry((kept.tenant, kept.study)).or_default().push((kept.number, kept.told));
        }
        let (mut shown, mut found) = (Things::new(), HashMap::new());
        for record in metadata.all::<StudyRecord>()? {
            // Records of a tenant go with the tenant, in one transaction.
            let Some(owner) = tenants.by_id(record.tenant) else { continue };
            let rows = rows.remove(&(record.tenant, record.name.clone())).unwrap_or_default();
            let bytes = record.bytes() + rows.iter().map(Row::bytes).sum::<u64>();
            let charge = Charge::whatever_the_limit(owner.jobs.clone(), bytes);
            let (tenant, name) = (record.tenant, record.name.clone());
            let is_over = record.state.is_over();
            let live = LiveStudy::new(record, rows, charge);
            let mut events = told.remove(&(tenant, name.clone())).unwrap_or_default();
            events.sort_by_key(|(number, _)| *number);
            live.told.store(events.last().map_or(0, |(number, _)| number + 1), Relaxed);
            if !is_over {
                let events = events.into_iter().map(|(_, event)| event).collect();
                found.insert((tenant, name.clone()), events);
            }
            shown.entry(tenant).or_default().insert(name.to_string(), live);
        }
        Ok(Self { metadata, shown: RwLock::new(shown), found: Mutex::new(found), changing: Arc::default() })
    }

    /// Studies that a node that stopped left unfinished, and what they were told.
    pub(super) fn unfinished(&self) -> Vec<(Arc<LiveStudy>, Vec<Event>)> {
        let found = std::mem::take(&mut *self.found.locked());
        let of = |((tenant, name), events): ((TenantId, Name), Vec<Event>)| {
            Some((self.get(tenant, name.as_str()).ok()?, events))
        };
        found.into_iter().filter_map(of).collect()
    }

    pub fn get(&self, tenant: TenantId, name: &str) -> Result<Arc<LiveStudy>, StudyError> {
        let things = self.shown.reading();
        let found = things.get(&tenant).and_then(|studies| studies.get(name));
        found.cloned().ok_or_else(|| StudyError::NotFound(name.chars().take(80).collect()))
    }

    /// A tenant's studies, by name.
    pub fn list(&self, tenant: TenantId) -> Vec<Arc<LiveStudy>> {
        self.shown.reading().get(&tenant).map(|studies| studies.values().cloned().collect()).unwrap_or_default()
    }

    /// Whether it was not deleted meanwhile: then nothing of it is written any more.
    pub(super) fn is_shown(&self, live: &Arc<LiveStudy>) -> bool {
        let record = live.record();
        self.get(record.tenant, record.name.as_str()).is_ok_and(|shown| Arc::ptr_eq(&shown, live))
    }

    /// Holds changes off, beside others who do.
    pub async fn hold(&self) -> tokio::sync::OwnedRwLockReadGuard<()> {
        self.changing.clone().read_owned().await
    }

    /// Holds every change off until the result is dropped.
    pub async fn pause(&self) -> tokio::sync::OwnedRwLockWriteGuard<()> {
        self.changing.clone().write_owned().await
    }

    /// Writes a new study, and shows it. Changes are held off by the caller.
    pub(super) async fn add(&self, record: StudyRecord, owner: &Tenant) -> Result<Arc<LiveStudy>, StudyError> {
        let mut charge = Charge::none(owner.jobs.clone());
        charge.grow(record.bytes()).map_err(|OverLimit { name, limit, .. }| {
            let what = "what is known of another study; delete jobs and studies that are over".to_owned();
            StudyError::Quota { name, limit, what }
        })?;
        self.metadata.commit(Batch::default().put(&record)?).await?;
        let (tenant, name) = (record.tenant, record.name.to_string());
        let live = LiveStudy::new(record, Vec::new(), charge);
        self.shown.writing().entry(tenant).or_default().insert(name, live.clone());
        Ok(live)
    }

    /// Writes what a study was told and what came of it, unless it was deleted. Whether it is there.
    pub(super) async fn write(&self, live: &Arc<LiveStudy>, batch: Batch) -> Result<bool, MetaError> {
        let _held = self.hold().await;
        if !self.is_shown(live) {
            return Ok(false);
        }
        self.metadata.commit(batch).await?;
        Ok(true)
    }

    /// Changes a study's record, on disk and then in memory.
    pub(super) async fn change(
        &self,
        live: &Arc<LiveStudy>,
        change: impl FnOnce(&mut StudyRecord),
    ) -> Result<Arc<StudyRecord>, MetaError> {
        let _held = self.hold().await;
        let _changing = live.changing.lock().await;
        let mut record = StudyRecord::clone(&live.record());
        change(&mut record);
        if self.is_shown(live) {
            self.metadata.commit(Batch::default().put(&record)?).await?;
        }
        Ok(live.show_record(record))
    }

    /// Takes a study away that no driver has any more.
    pub(super) async fn remove(&self, live: &Arc<LiveStudy>) -> Result<(), MetaError> {
        let _paused = self.pause().await;
        if !self.is_shown(live) {
            return Ok(());
        }
        self.metadata.commit(self.deletion(live)?).await?;
        let record = live.record();
        if let Some(studies) = self.shown.writing().get_mut(&record.tenant) {
            studies.remove(record.name.as_str());
        }
        Ok(())
    }

    /// Everything that is kept of a study, as deletions.
    fn deletion(&self, live: &LiveStudy) -> Result<Batch, MetaError> {
        let record = live.record();
        let mut batch = Batch::default().delete::<StudyRecord>(super::record::study_key(record.tenant, &record.name));
        for row in live.shown().iter() {
            batch = batch.delete::<KeptTrial>(part_key(record.tenant, &record.name, row.trial.number.into()));
        }
        for number in 0..live.told.load(Relaxed) {
            batch = batch.delete::<KeptEvent>(part_key(record.tenant, &record.name, number));
        }
        Ok(batch)
    }

    /// The records of a tenant as deletions, for the transaction that deletes the tenant.
    pub fn deletion_of(&self, tenant: TenantId) -> Batch {
        let studies = self.list(tenant);
        let deletions = studies.iter().filter_map(|live| self.deletion(live).ok());
        deletions.fold(Batch::default(), Batch::and)
    }

    /// Forgets a tenant whose records are gone; what drives its studies ends.
    pub fn forget(&self, tenant: TenantId) {
        for live in self.shown.writing().remove(&tenant).unwrap_or_default().into_values() {
            live.leaves.send_replace(true);
        }
    }
}
