use weft_core::usage::{Replicas, Spending, Stages, Traffic};

use super::super::record::State;
use super::super::record::tests::job;
use super::*;
use crate::tenant::{Account, Quota, Tenants};

fn epoch() -> EpochRecord {
    EpochRecord {
        epoch: 1,
        train_loss: 0.0,
        validation: BTreeMap::new(),
        workers: 1,
        batch: 1,
        lr: 0.0,
        samples: 1,
        steps: 1,
        seconds: 0.0,
        samples_per_second: 0.0,
        memory: 0,
        stages: Stages::default(),
        spending: Spending::default(),
        costs: Default::default(),
        losses: 0,
        traffic: Traffic::default(),
        replicas: Replicas::default(),
        mean_staleness: None,
        max_staleness: None,
        primal_residual: None,
        dual_residual: None,
        reshaped: Vec::new(),
        data: None,
    }
}

#[tokio::test]
async fn an_epoch_that_waits_to_be_recorded_does_not_take_the_ledger_back() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata::open(&folder.path().join("meta.redb")).unwrap();
    let memory = Account::new("max_memory", u64::MAX, None);
    let tenants = Tenants::load(metadata.clone(), memory.clone()).unwrap();
    let (tenant, _) = tenants.create("ada".parse().unwrap(), Quota::default(), None).await.unwrap();
    let roster = Roster::load(metadata.clone(), Blobs::memory(), 1, &tenants).unwrap();
    let live = roster.add(Job { tenant: tenant.id, ..job(State::Running, 0) }, &tenant).await.unwrap();
    tenant.ledger.charge_job();
    let checkpoint = live.job().checkpoint.unwrap();
    let still = roster.hold_still().await;
    let advance = Advance { checkpoint, epoch: Some(epoch()), shape: None, made: Vec::new(), plan: None };
    let mut recorded = Box::pin(roster.advance(&live, advance, &tenant));
    assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut recorded).await.is_err(), "nothing held it");
    // The periodic write comes first, and has more to write.
    tenant.ledger.charge_job();
    metadata.commit_with(Batch::default(), || tenants.usage_batch()).await.unwrap();
    drop(still);
    recorded.await.unwrap();
    let again = Tenants::load(metadata, memory).unwrap();
    assert_eq!(again.get("ada").unwrap().ledger.usage().jobs, 2);
}

/// No roster, and a tenant who may have some.
pub(in crate::job) async fn roster(folder: &std::path::Path) -> (Roster, Arc<Tenant>) {
    let metadata = Metadata::open(&folder.join("meta.redb")).unwrap();
    let tenants = Tenants::load(metadata.clone(), Account::new("max_memory", u64::MAX, None)).unwrap();
    let (tenant, _) = tenants.create("ada".parse().unwrap(), Quota::default(), None).await.unwrap();
    (Roster::load(metadata, Blobs::memory(), 8, &tenants).unwrap(), tenant)
}

#[tokio::test]
async fn nothing_is_deleted_while_it_is_not_known_what_a_job_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (roster, tenant) = roster(folder.path()).await;
    let (manifest, other) = (Digest::of(b"manifest"), Digest::of(b"other"));
    let live = roster.add(Job { data: Some(manifest), ..job(State::Queued, 0) }, &tenant).await.unwrap();
    let kept = || {
        let mut candidates = HashSet::from([manifest, other]);
        roster.referrer().keep(&mut candidates);
        candidates
    };
    // Its manifest cannot be read.
    roster.find_needs(Duration::from_secs(60)).await;
    assert_eq!((roster.unknown_needs(), kept()), (1, HashSet::new()));
    live.need(live.job().version, None);
    assert_eq!((roster.unknown_needs(), kept()), (0, HashSet::from([other])));
}

#[tokio::test]
async fn what_a_job_that_is_over_needed_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let (roster, tenant) = roster(folder.path()).await;
    let data = Digest::of(b"manifest");
    roster.add(Job { data: Some(data), ..job(State::Done, 0) }, &tenant).await.unwrap();
    let mut candidates = HashSet::from([data]);
    roster.referrer().keep(&mut candidates);
    assert!(candidates.contains(&data) && roster.unknown_needs() == 0);
}

#[tokio::test]
async fn what_a_record_comes_to_take_is_the_tenants_and_no_reason_is_long() {
    let folder = tempfile::tempdir().unwrap();
    let (roster, tenant) = roster(folder.path()).await;
    let live = roster.add(job(State::Running, 0), &tenant).await.unwrap();
    let before = tenant.jobs.used();
    let long: String = "m".repeat(16 << 20);
    roster.change(&live, |job| job.reason.clone_from(&long)).await.unwrap();
    // Once as the record's, and once as the event's.
    let taken = tenant.jobs.used() - before;
    assert!((4 << 10..16 << 10).contains(&taken), "{taken} bytes");
    roster.change_anyway(&live, |job| job.reason.clone_from(&long)).await;
    live.tell_reason(&long);
    assert!(live.job().reason.len() <= 4 << 10, "{} bytes", live.job().reason.len());
    drop((live, roster));
    assert_eq!(tenant.jobs.used(), 0);
}

#[tokio::test]
async fn a_job_that_could_not_be_deleted_stays_and_one_that_was_is_gone_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let (roster, tenant) = roster(folder.path()).await;
    let live = roster.add(job(State::Done, 0), &tenant).await.unwrap();
    let leaving = live.leave().unwrap();
    assert!(live.is_leaving() && live.leave().is_none());
    drop(leaving);
    assert!(!live.is_leaving());
    live.leave().unwrap().has_left();
    assert!(live.is_leaving(), "whoever found it before does not resume it");
}

#[tokio::test]
async fn what_a_job_reads_is_known_until_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let (roster, tenant) = roster(folder.path()).await;
    let (version, block) = (Digest::of(b"manifest"), Digest::of(b"block"));
    let manifest = super::super::held::tests::manifest(&[block]);
    let live = roster.add(Job { data: Some(version), ..job(State::Queued, 0) }, &tenant).await.unwrap();
    live.need(live.job().version, Some((&manifest, version)));
    let kept = || {
        let mut candidates = HashSet::from([version, block]);
        roster.referrer().keep(&mut candidates);
        candidates.is_empty()
    };
    assert!(kept());
    roster.change(&live, |job| job.end(State::Stopped, "")).await.unwrap();
    assert!(!kept() && live.needs.reading().is_none());
}
