//! What starts jobs: the queue is looked through, leases are taken, and what cannot run yet waits.
//!
//! A job is queued by what its record says alone, so that nothing stands between a restart and the queue. Whatever is in its
//! way and passes sends it back to the queue for a while; a job is never over because its node was busy.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_core::queue::{Ask, InTheWay, Pass};
use weft_core::spec::{Memory, Shape};
use weft_core::suspects::blame;
use weft_gpu::pool::{PoolError, Room};
use weft_gpu::{Lease, Pool};

use super::host_memory::HostMemory;
use super::live::Live;
use super::prepare::device_and_codec;
use super::record::{Job, State};
use super::roster::Roster;
use super::scale::allowed;
use super::team::Order;
use super::workshop::{Wanted, Workshop};
use super::{Jobs, suspects};
use crate::dataset::Manifest;
use crate::devices::is_busy;
use crate::locks::Lock;
use crate::logs::one_line;
use crate::tenant::Tenant;

/// How soon it is looked again whether a device has come back, or there is room for a job that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Memory that is given back comes in many small parts: they are waited for so long before the queue is looked through.
const GATHER: Duration = Duration::from_millis(10);
/// How long a job waits for something to pass: twice as long each time in a row, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Looks through the queue whenever a job has come or gone, or memory was given back, for as long as there is a node.
pub(crate) async fn schedule(jobs: Weak<Jobs>) {
    let Some((wake, mut freed)) =
        jobs.upgrade().map(|jobs| (jobs.roster.wake.clone(), jobs.facilities.devices.freed()))
    else {
        return;
    };
    let mut someone_waits = false;
    loop {
        let bar_ends = jobs.upgrade().and_then(|jobs| jobs.roster.queue.locked().bar_ends());
        let bar_ends = async {
            match bar_ends {
                // One that is over by now, and still there, is looked at again in a while.
                Some(end) => tokio::time::sleep_until(end.max(Instant::now() + LOOK_AGAIN).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wake.notified() => {}
            () = bar_ends => {}
            changed = freed.changed() => match changed {
                Ok(()) => tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    () = wake.notified() => {}
                },
                Err(_) => return,
            },
            // The machine's memory is given back by others than devices too, who tell nobody.
            () = tokio::time::sleep(LOOK_AGAIN), if someone_waits => {}
        }
        let Some(jobs) = jobs.upgrade() else { return };
        let before = *freed.borrow_and_update();
        let own = jobs.start_jobs().await;
        someone_waits = jobs.roster.queue.locked().is_waiting();
        // What it took and gave back itself is no news.
        if *freed.borrow_and_update() > before + own {
            wake.notify_one();
        }
    }
}

pub(super) fn ask_of(job: &Job) -> Ask {
    let shape = job.shape();
    let (lanes, bytes) = (shape.lanes(), shape.all_memory(job.host_bytes()));
    Ask { tenant: job.tenant, name: job.name.to_string(), lanes, bytes, suspect: job.is_suspect() }
}

/// A device that a job could have: what jobs may have of it, and what the job's own tenant has of it already.
struct OwnPart {
    capacity: usize,
    own: usize,
}

/// Whether so many leases would find room if nobody else than their own tenant had anything.
fn fits_beside_own(devices: &[OwnPart], bytes: usize, leases: u32) -> bool {
    let room = |device: &OwnPart| device.capacity.saturating_sub(device.own) / bytes.max(1);
    devices.iter().map(room).sum::<usize>() >= leases as usize
}

/// Who keeps a job from fitting. Nothing of it is leased any more.
fn in_the_way(pool: &Pool, tenant: &Tenant, job: &Job, error: &PoolError) -> InTheWay {
    let PoolError::NothingFits { rooms, wanted, .. } = error else { return InTheWay::Others };
    let ledger = pool.ledger();
    let own_part = |room: &Room| {
        let accounts = ledger.device(room.device).map(|device| &device.tenants);
        let own = accounts.and_then(|accounts| accounts.get(&tenant.owner));
        OwnPart { capacity: room.capacity, own: own.map_or(0, |account| account.reserved) }
    };
    let devices: Vec<OwnPart> = rooms.iter().map(own_part).collect();
    match fits_beside_own(&devices, *wanted, job.shape().lanes()) {
        true => InTheWay::Others,
        false => InTheWay::OwnTenant,
    }
}

impl Jobs {
    /// Goes on with jobs that a node that stopped, or was killed, left unfinished. It is done before anybody can ask for
    /// them, and written in one transaction: a node that is killed meanwhile finds all of it or nothing, and blames nobody
    /// for half of it.
    pub(crate) async fn resume_unfinished(&self) {
        let id = |job: &Job| (job.tenant, job.name.clone());
        let unfinished: Vec<(Arc<Live>, Arc<Job>)> =
            self.roster.unfinished().into_iter().map(|live| (live.clone(), live.job())).collect();
        let ran = unfinished.iter().filter(|(_, job)| job.state == State::Running);
        let ran: Vec<_> = ran.map(|(_, job)| id(job)).collect();
        let blamed = blame(&ran, self.roster.last_trial().as_ref());
        let (mut found, mut goes_on) = (Vec::new(), Vec::new());
        for (live, job) in unfinished {
            if self.facilities.tenants.by_id(job.tenant).is_none() {
                continue;
            }
            let mut job = Job::clone(&job);
            match job.found_unfinished(blamed == Some(&id(&job))) {
                true => goes_on.push((live.clone(), job.is_suspect(), job.deaths.blamed)),
                false if job.state == State::Waiting => continue,
                false => tracing::warn!(job = %job.name, reason = %one_line(&job.reason), "a job is held back"),
            }
            found.push((live, job));
        }
        self.roster.note_found(found, suspects::no_trial()).await;
        // Suspects come last. Of them, whoever was blamed comes first, so that nobody else is there to be blamed instead.
        goes_on.sort_by_key(|(_, is_suspect, blamed)| (*is_suspect, std::cmp::Reverse(*blamed)));
        for (live, ..) in goes_on {
            self.roster.enqueue(&live, None, None);
        }
    }

    /// Starts every job that may run now. How many leases were taken and given back for jobs that need more.
    async fn start_jobs(self: &Arc<Self>) -> u64 {
        let mut given_back = 0;
        let mut pass = Pass::default();
        while !self.is_stopping() {
            let rights = |tenant| Some(allowed(&*self.facilities.tenants.by_id(tenant)?));
            let Some(mut ask) = self.roster.queue.locked().next(&mut pass, Instant::now(), rights) else { break };
            let pool = match self.facilities.devices.open().await {
                Ok(pool) => pool,
                Err(error) => {
                    tracing::error!(%error, "jobs wait: the devices could not be opened");
                    self.roster.queue.locked().no_room(&ask, &mut pass, InTheWay::Others);
                    self.look_again();
                    break;
                }
            };
            let found = self.roster.live(ask.tenant, &ask.name).ok().zip(self.facilities.tenants.by_id(ask.tenant));
            let Some((live, tenant)) = found else {
                // It was deleted; whoever did that takes it from the queue, if he has not yet.
                self.roster.queue.locked().no_room(&ask, &mut pass, InTheWay::Others);
                self.roster.queue.locked().remove(ask.tenant, &ask.name);
                continue;
            };
            // It was scaled since it was put into the queue.
            let now = ask_of(&live.job());
            if now != ask {
                self.roster.queue.locked().no_room(&ask, &mut pass, InTheWay::Others);
                self.roster.queue.locked().ask_for(now);
                self.look_again();
                continue;
            }
            let is_empty = pool.ledger().is_zero();
            let mut leases = Vec::new();
            match take_leases(pool, &tenant, &live.job(), &mut leases) {
                Ok(()) => {
                    if self.roster.queue.locked().started(&ask, &pass) {
                        self.take_more(pool, &tenant, &live, &mut ask, &mut leases).await;
                        self.start_job(live, ask, leases);
                    }
                }
                Err(error) => {
                    given_back += leases.iter().map(|taken: &Vec<Lease>| taken.len() as u64).sum::<u64>();
                    drop(leases);
                    // One that waits for a device that is lost, or does not fit into empty ones, must not keep others waiting.
                    let is_full = matches!(error, PoolError::NothingFits { .. }) && is_busy(&error) && !is_empty;
                    if is_full {
                        let in_the_way = in_the_way(pool, &tenant, &live.job(), &error);
                        self.roster.queue.locked().no_room(&ask, &mut pass, in_the_way);
                    } else if self.roster.queue.locked().started(&ask, &Pass::default()) {
                        self.roster.queue.locked().end(&ask);
                        let text = format!("no device: {error}");
                        // One that has been given more and more memory needs more than there is.
                        let never_fits = live.job().spec.memory == Memory::Auto && !is_busy(&error);
                        match never_fits {
                            true => drop(self.roster.change_anyway(&live, |job| job.end(State::Failed, text)).await),
                            false => self.wait_for_it_to_pass(&live, &text).await,
                        }
                    }
                }
            }
        }
        given_back
    }

    /// Gives a job that may have from so many to so many workers, and has not trained yet, as many as find room.
    async fn take_more(&self, pool: &Pool, tenant: &Tenant, live: &Live, ask: &mut Ask, leases: &mut Vec<Vec<Lease>>) {
        let job = live.job();
        let (mut shape, most) = (job.shape(), job.spec.workers.most);
        let Ok(spec) = job.spec.check() else { return };
        let Ok((device, _)) = device_and_codec(&spec) else { return };
        // What a policy decides about begins with the fewest.
        if spec.plan.is_some_and(|plan| plan.decides()) {
            return;
        }
        // What its copies of the model take is not known before it was tried out.
        let is_known = job.host != HostMemory::default();
        if !job.spec.workers.is_range() || job.scaled || job.checkpoint.is_some() || !is_known {
            return;
        }
        while shape.workers < most {
            let next = Shape { workers: shape.workers + 1, ..shape };
            if self.roster.rebook(tenant, &job, ask, &next).is_err() {
                break;
            }
            let host_bytes = job.host.per_worker(shape.workers);
            let wanted = Wanted { shape, device, host_bytes };
            let (cancel, mut worker) = (weft_gpu::Cancel::default(), Vec::new());
            if wanted.lease_worker(pool, tenant, &cancel, &mut worker).is_err() {
                // What it had was allowed before.
                self.roster.rebook(tenant, &job, ask, &shape).ok();
                break;
            }
            leases.push(worker);
            shape = next;
        }
        self.roster.change_anyway(live, |job| job.shape = Some(shape)).await;
    }

    fn look_again(&self) {
        let wake = self.roster.wake.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LOOK_AGAIN).await;
            wake.notify_one();
        });
    }

    /// Sends a job back to the queue, where it waits for a while before it is tried again. It is not in the queue, nor
    /// counted as running.
    pub(super) async fn wait_for_it_to_pass(self: &Arc<Self>, live: &Arc<Live>, reason: &str) {
        let stumbles = live.stumbles.fetch_add(1, Relaxed).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << stumbles).min(LONGEST_WAIT);
        let (tenant, name) = (live.job().tenant, live.job().name.clone());
        tracing::warn!(job = %name, reason = %one_line(reason), seconds = wait.as_secs(), "a job waits, and is tried again");
        if !self.roster.go_back(live, reason).await {
            return;
        }
        let jobs = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(jobs) = jobs.upgrade() else { return };
            jobs.roster.queue.locked().due(tenant, name.as_str());
            jobs.roster.look_through_queue();
        });
    }
}

impl Roster {
    pub(super) fn enqueue(&self, live: &Live, prepared: Option<Arc<Workshop>>, manifest: Option<&Manifest>) {
        let job = live.job();
        if manifest.is_some() || job.data.is_none() {
            live.need(job.version, manifest.zip(job.data));
        }
        match &prepared {
            Some(prepared) => live.keep_prepared(prepared),
            None => live.forget_prepared(),
        }
        self.queue.locked().push(ask_of(&job));
        self.look_through_queue();
    }

    /// Puts a job back into the queue, where it is set aside. Whether it waits there: not if it was told to stop meanwhile.
    async fn go_back(&self, live: &Live, reason: &str) -> bool {
        let reason = format!("waits: {reason}");
        // Before it is in the queue: whoever finds it there to stop it has the last word on its state.
        let job = self.change_anyway(live, |job| {
            (job.state, job.reason) = (State::Queued, reason);
            job.forget_room();
        });
        let job = job.await;
        self.queue.locked().set_aside(ask_of(&job));
        // An order that came before it was in the queue.
        if *live.orders.borrow() == Order::Stop && self.queue.locked().remove(job.tenant, job.name.as_str()) {
            self.change_anyway(live, |job| job.end(State::Stopped, "stopped while it waited")).await;
        }
        self.queue.locked().position(job.tenant, job.name.as_str()).is_some()
    }
}

/// Leases for all workers; those that were granted before one was not are left in `taken`.
fn take_leases(pool: &Pool, tenant: &Tenant, job: &Job, taken: &mut Vec<Vec<Lease>>) -> Result<(), PoolError> {
    // What the words mean was checked when it was submitted.
    let Some((device, _)) = job.spec.check().ok().and_then(|spec| device_and_codec(&spec).ok()) else { return Ok(()) };
    let wanted = Wanted { shape: job.shape(), device, host_bytes: job.host_bytes() };
    for _ in 0..wanted.shape.workers {
        // One order stops all functions of a worker.
        let cancel = weft_gpu::Cancel::default();
        let mut worker = Vec::new();
        let granted = wanted.lease_worker(pool, tenant, &cancel, &mut worker);
        taken.push(worker);
        granted?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::super::record::tests::job;
    use super::super::roster::tests::roster;
    use super::*;

    #[test]
    fn a_job_fits_beside_its_own_tenants_if_its_workers_do_on_some_devices() {
        let part = |capacity, own| OwnPart { capacity, own };
        assert!(fits_beside_own(&[part(7, 0)], 7, 1) && !fits_beside_own(&[part(7, 1)], 7, 1));
        assert!(fits_beside_own(&[part(7, 1), part(7, 4)], 3, 3) && !fits_beside_own(&[part(7, 2), part(7, 4)], 4, 2));
    }

    #[tokio::test]
    async fn a_job_that_goes_back_is_in_the_queue_only_once_its_record_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (roster, tenant) = roster(folder.path()).await;
        let live = roster.add(Job { tenant: tenant.id, ..job(State::Running, 0) }, &tenant).await.unwrap();
        // Whoever stops a job looks for it in the queue, and writes that it has stopped if it was there.
        let stops = || roster.queue.locked().remove(live.job().tenant, live.job().name.as_str());
        let mut going = std::pin::pin!(roster.go_back(&live, "for a reason"));
        while std::future::poll_fn(|context| Poll::Ready(going.as_mut().poll(context))).await.is_pending() {
            assert!(!stops() || live.job().state == State::Queued, "what is shown next is not that it has stopped");
            tokio::task::yield_now().await;
        }
        assert!(stops() && live.job().reason == "waits: for a reason");
        live.orders.send_replace(Order::Stop);
        assert!(!roster.go_back(&live, "again").await);
        assert_eq!((live.job().state, stops()), (State::Stopped, false));
    }
}
