//! How a job is planned while it runs: between two rounds something may be decided, and a budget is kept.
//!
//! A [`Course`] decides, and knows what was spent. Here it is asked and told: what a stretch of training took, what room
//! there is, how much is left to do. A decision is kept with a checkpoint before it is carried out, so after a crash the job
//! goes on with the same decision, from there.
//!
//! Decisions count steps of one size, whatever the workers are: the global batch of a job that has one, or else the batch
//! of one worker. A step of several workers is several of those.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_core::plan::course::{Course, CourseRecord, Fits, Order, Pace, Standing, Used, fits};
use weft_core::plan::policy::{Action, Policy, Workload};
use weft_core::plan::prices::GIB;
use weft_core::spec::{CheckedSpec, Shape};
use weft_core::throttle::RESERVE;

use super::super::accounting::Accounting;
use super::super::record::PlanStep;
use super::super::team::Halt;
use super::super::workshop::Workshop;
use super::{Engine, Keeper};
use crate::digest::Digest;
use crate::train::settings;

/// A try has so many rounds at least: the first one of new workers is slower than those that follow.
const LEAST_ROUNDS: u64 = 2;
/// What a job may have spent is written down for so many seconds ahead, where it must be known after a crash.
const NOTED_AHEAD: f64 = 2.0;
/// And for no more than such a part of a limit, unless a round is longer.
const NOTED_PART: f64 = 0.05;
/// How much of the last round's pace goes into what is expected of the next one.
const LATEST: f64 = 0.5;

/// What a job has spent at most, as is known after a crash: written down before it is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SpentAtMost {
    pub seconds: f64,
    pub cost: f64,
}

/// What plans a job while it runs.
pub struct Planning {
    course: Course,
    /// What the stretch had taken before the marks below.
    used: Used,
    since: Instant,
    /// What the job had paid at the mark.
    paid: f64,
    /// What a round's step took lately, with workers of a shape.
    pace: Option<(Shape, Pace)>,
    /// What a validation cost.
    validation: Option<f64>,
    /// A shape that the job has trained with.
    good: Option<Shape>,
    /// Whether the shape that was decided for cannot be had.
    is_refused: bool,
    /// Whether the next round does not fit into the budget, so that something is to be decided.
    is_stuck: bool,
    noted: SpentAtMost,
    /// A decision that is told once it is kept.
    news: Option<PlanStep>,
    settings: u64,
}

impl Planning {
    /// Goes on with a course from its record; `spent` is what was spent at most, of which the record may not know.
    pub fn resume(record: CourseRecord, spent: SpentAtMost) -> Result<Self, String> {
        let (used, known) = (record.begun, record.spent());
        let course = Course::resume(record).map_err(|error| error.to_string())?;
        let lost = SpentAtMost { seconds: spent.seconds - known.seconds, cost: spent.cost - known.cost };
        Ok(Self { used, noted: spent, ..Self::new(course, lost) })
    }

    /// Begins with a course, before which so much was spent for nothing.
    pub fn new(mut course: Course, lost: SpentAtMost) -> Self {
        if lost.seconds > 0.0 || lost.cost > 0.0 {
            course.lose(lost.seconds, lost.cost);
        }
        Self {
            course,
            used: Used::default(),
            since: Instant::now(),
            paid: 0.0,
            pace: None,
            validation: None,
            good: None,
            is_refused: false,
            is_stuck: false,
            noted: SpentAtMost::default(),
            news: None,
            settings: 0,
        }
    }

    /// Somebody has said how many workers there are to be, or how large, before it began.
    pub fn pin(&mut self, workers: Option<u32>, memory: Option<u64>) {
        self.course.pin(workers, memory);
    }

    /// What the stretch has taken so far, when the job has paid so much.
    fn used(&self, paid: f64) -> Used {
        let Used { steps, seconds, elapsed, cost } = self.used;
        let elapsed = elapsed + self.since.elapsed().as_secs_f64();
        Used { steps, seconds, elapsed, cost: cost + (paid - self.paid) }
    }

    fn begin_stretch(&mut self, paid: f64) {
        (self.used, self.since, self.paid) = (Used::default(), Instant::now(), paid);
    }

    /// Whether something is to be decided before the next round, where a step of the workers is so many.
    fn is_due(&self, per_step: u64) -> bool {
        let is_too_short = self.course.is_trying() && self.used.steps < LEAST_ROUNDS * per_step;
        self.course.pending().is_none() || self.course.is_due(self.used.steps) && !is_too_short
    }

    fn has_limits(&self) -> bool {
        let limits = self.course.planner().limits();
        limits.cost.is_some() || limits.seconds.is_some()
    }
}

/// What a second of workers that are busy on all they have costs, and what they may use beyond that at once.
fn most_second(accounting: &Accounting, workshop: &Workshop, shape: &Shape) -> (f64, f64) {
    let prices = &accounting.prices;
    let (lanes, gib) = (f64::from(shape.lanes()), shape.memory as f64 / GIB);
    let cores = workshop.core_count() as f64;
    let (cores, at_once) = match workshop.cores_per_gib * gib {
        cap if cap > 0.0 => (cores.min(cap * lanes), RESERVE.as_secs_f64() * lanes),
        _ => (cores, 0.0),
    };
    let gpus = if accounting.uses_gpu { prices.dearest_gpu() * lanes } else { 0.0 };
    let second = prices.gib_second * gib * lanes + (prices.cpu_second * cores).max(gpus);
    (second, prices.cpu_second * at_once + prices.start * lanes)
}

/// Steps as decisions count them.
struct Counting<'a> {
    spec: &'a CheckedSpec,
    samples: Option<u64>,
    shape: Shape,
}

impl Counting<'_> {
    /// Of one step of these workers.
    fn per_step(&self) -> u64 {
        let is_whole = self.samples.is_none() || self.spec.words.global_batch.is_some() || self.spec.fans_out_epoch();
        if is_whole { 1 } else { self.shape.workers.into() }
    }

    /// Samples of one such step, in an epoch.
    fn samples(&self, epoch: u64) -> u32 {
        match self.spec.words.global_batch {
            Some(global) => self.shape.batch.map_or(global, |batch| batch.get()),
            None => self.spec.batch_of(epoch, &self.shape).get().saturating_mul(self.shape.fan_out),
        }
    }

    /// Of an epoch.
    fn of(&self, epoch: u64) -> u64 {
        match self.samples {
            _ if self.spec.fans_out_epoch() => 1,
            None => self.spec.words.steps,
            Some(samples) => samples.div_ceil(self.samples(epoch).max(1).into()),
        }
    }

    /// Of all epochs from one on.
    fn from(&self, epoch: u64) -> u64 {
        let epochs = self.spec.words.epochs;
        if self.spec.words.batch_schedule.is_empty() {
            return epochs.saturating_sub(epoch).saturating_mul(self.of(epoch));
        }
        (epoch..epochs).fold(0, |sum: u64, epoch| sum.saturating_add(self.of(epoch)))
    }
}

impl<K: Keeper> Engine<K> {
    /// Has the job be planned while it runs.
    pub fn planned(mut self, mut planning: Planning) -> Self {
        let brief = &self.workshop.brief;
        let words =
            (settings::to_json(&brief.settings), brief.sync.rule, &brief.sync.codec, &brief.spec.words.optimizer);
        let digest = Digest::of(format!("{words:?}").as_bytes());
        planning.settings = digest.as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        self.planning = Some(planning);
        self
    }

    /// Whether the job is only about finding out what shapes take.
    pub(super) fn is_only_planned(&self) -> bool {
        self.planning.as_ref().is_some_and(|planning| planning.course.is_only())
    }

    fn counting(&self) -> Counting<'_> {
        let samples = self.workshop.data.as_ref().map(|data| data.manifest.train.count);
        Counting { spec: self.workshop.spec(), samples, shape: self.shape }
    }

    fn workload(&self, epoch: u64, settings: u64) -> Workload {
        let parameters = self.training.model.weights.len() as u64;
        Workload { batch: self.counting().samples(epoch), parameters, settings }
    }

    /// Decides what comes next, if something is to be decided before the next round. Why the job is over, if it is.
    pub(super) async fn plan(&mut self, steps: u64) -> Result<Option<String>, Halt> {
        let per_step = self.counting().per_step();
        let Some(planning) = &mut self.planning else { return Ok(None) };
        if planning.is_stuck && planning.used.steps == 0 && planning.course.pending().is_some() {
            return Err(Halt::OutOfBudget("the next round might exceed it".to_owned()));
        }
        if planning.is_stuck || planning.is_due(per_step) {
            self.tell_plan(self.training.progress.epoch, false);
            self.ask_plan(steps);
            // Before workers are replaced there is a checkpoint anyway.
            if self.planned_shape().is_none() {
                self.account();
                self.checkpoint(None).await?;
            }
        }
        let Some(planning) = &self.planning else { return Ok(None) };
        match planning.course.order(&self.shape) {
            Order::End(reason) => Ok(Some(reason)),
            Order::GoOn | Order::Reshape(_) => Ok(None),
        }
    }

    /// The shape that was decided for, if the job does not have it and may get it.
    pub(super) fn planned_shape(&self) -> Option<Shape> {
        let planning = self.planning.as_ref().filter(|planning| !planning.is_refused)?;
        match planning.course.order(&self.shape) {
            Order::Reshape(shape) => Some(shape),
            Order::GoOn | Order::End(_) => None,
        }
    }

    /// Whether what new workers of a shape cost fits into the budget.
    pub(super) fn may_employ(&self, shape: &Shape) -> bool {
        let Some(planning) = &self.planning else { return true };
        let left = planning.course.allowance(&planning.used(self.accounting.paid));
        let (_, at_once) = most_second(&self.accounting, &self.workshop, shape);
        left.is_none_or(|left| left > at_once)
    }

    /// The shape that was decided for cannot be had now, or never for want of memory.
    pub(super) fn planned_shape_is_refused(&mut self, shape: &Shape, for_good: bool) {
        let before = self.shape.memory;
        if let Some(planning) = &mut self.planning {
            planning.is_refused = true;
            if for_good && shape.memory < before {
                planning.course.cannot_train_with(shape.memory);
            }
        }
    }

    /// Somebody changes the workers: what comes next is decided anew, and that stays.
    pub(super) fn plan_by_hand(&mut self, workers: Option<u32>, memory: Option<u64>) {
        let Some(planning) = &self.planning else { return };
        // A change for which there is no room yet is tried again and again; one of the batch says nothing about workers.
        let is_of_batch = workers.is_none() && memory.is_none();
        if planning.course.is_pinned(workers, memory) && !is_of_batch {
            return;
        }
        self.tell_plan(self.training.progress.epoch, false);
        if let Some(planning) = &mut self.planning {
            planning.course.pin(workers, memory);
        }
    }

    /// Workers have run out of memory: the job goes back to a shape that it has trained with, if that has more.
    pub(super) async fn go_back(&mut self, reason: String) -> Result<(), Halt> {
        let tried = self.shape;
        self.team.spend_until = None;
        let good = self.planning.as_ref().and_then(|planning| planning.good).filter(|good| good.memory > tried.memory);
        let Some(good) = good else { return Err(Halt::OutOfMemory(reason)) };
        tracing::info!(job = %self.workshop.brief.job, reason, "a planned job goes back to workers with more memory");
        self.account();
        self.tell_plan(self.training.progress.epoch, false);
        if let Some(planning) = &mut self.planning {
            planning.course.cannot_train_with(tried.memory);
        }
        if let Err(refused) = self.replace_workers(good).await? {
            return Err(Halt::Waits(refused.reason));
        }
        Ok(())
    }

    /// Tells what the stretch has taken, if anything was trained in it or an epoch ends.
    pub(super) fn tell_plan(&mut self, epoch: u64, ends_epoch: bool) {
        let Some(settings) = self.planning.as_ref().map(|planning| planning.settings) else { return };
        let (workload, paid) = (self.workload(epoch, settings), self.accounting.paid);
        let Some(planning) = &mut self.planning else { return };
        let used = planning.used(paid);
        if ends_epoch || used.steps > 0 || planning.course.pending().is_some() {
            planning.course.tell(self.shape, workload, used, ends_epoch);
            planning.begin_stretch(paid);
        }
    }

    /// Decides what comes next, in an epoch of which so many steps are to be done.
    pub(super) fn ask_plan(&mut self, steps: u64) {
        let Some(settings) = self.planning.as_ref().map(|planning| planning.settings) else { return };
        let progress = &self.training.progress;
        let counting = self.counting();
        let rest = steps.saturating_sub(progress.done).saturating_mul(counting.per_step());
        let left = rest.saturating_add(counting.from(progress.epoch + 1));
        let all = counting.from(0);
        let workload = self.workload(progress.epoch, settings);
        let standing = Standing { room: self.keeper.room(&self.shape), workload, left, all };
        let (step, shape) = (progress.step, self.shape);
        let Some(planning) = &mut self.planning else { return };
        (planning.is_refused, planning.is_stuck) = (false, false);
        let order = planning.course.ask(&standing, &shape);
        let next = if let Order::Reshape(next) = order { next } else { shape };
        // Where people decide, it is no news that nothing was decided.
        let is_manual = planning.course.planner().spec().policy == Policy::Manual;
        let decision = planning.course.pending().filter(|it| !(is_manual && it.action == Action::Keep));
        planning.news = decision.map(|decision| PlanStep {
            step,
            workers: next.workers,
            memory: next.memory,
            spent: *planning.course.planner().spent(),
            decision: decision.clone(),
        });
    }

    /// Has what is planned kept with the next checkpoint.
    pub(super) fn keep_plan(&mut self) {
        let paid = self.accounting.paid;
        let Some(planning) = &mut self.planning else { return };
        let record = planning.course.record(planning.used(paid));
        self.keeper.planned(Arc::new(record), planning.news.take());
    }

    /// How many steps of a round of so many may be done now; none, if something is to be decided before. What the workers
    /// do then is ended before it exceeds the budget.
    pub(super) async fn steps_that_fit(&mut self, steps: u64, may_be_fewer: bool) -> Result<u64, Halt> {
        if self.planning.is_none() {
            return Ok(steps);
        }
        // What workers have used to start is no part of the round.
        self.count(&Vec::new(), false)?;
        let per_step = self.counting().per_step();
        let (paid, shape) = (self.accounting.paid, self.shape);
        let (second, at_once) = most_second(&self.accounting, &self.workshop, &shape);
        let at_once = at_once + self.moved_cost();
        let Some(planning) = &mut self.planning else { return Ok(steps) };
        let decided = planning.course.steps().filter(|_| may_be_fewer).map(|decided| {
            let least = if planning.course.is_trying() { LEAST_ROUNDS * per_step } else { 1 };
            decided.max(least).saturating_sub(planning.used.steps).div_ceil(per_step).max(1)
        });
        let most = steps.min(decided.unwrap_or(u64::MAX));
        let left = planning.course.allowance(&planning.used(paid)).map(|left| left - at_once);
        let pace = planning.pace.filter(|(of, _)| *of == shape).map(|(_, pace)| pace);
        let round = match fits(most, left, pace, second) {
            Fits::Within(_) => most,
            Fits::Steps(fewer) if may_be_fewer => fewer,
            // Nothing is known of it: it is begun, and ended in time.
            Fits::Steps(_) if pace.is_none() => most,
            Fits::Steps(_) | Fits::No => {
                planning.is_stuck = true;
                return Ok(0);
            }
        };
        self.note_spending(round, second).await?;
        self.team.spend_until = left.and_then(|left| in_seconds(left / second));
        Ok(round)
    }

    /// A round of so many steps has trained for so long.
    pub(super) fn note_round(&mut self, steps: u64, began: Instant, paid_before: f64) {
        self.team.spend_until = None;
        let (per_step, shape, paid) = (self.counting().per_step(), self.shape, self.accounting.paid);
        let Some(planning) = &mut self.planning else { return };
        let seconds = began.elapsed().as_secs_f64();
        planning.used.steps += steps.saturating_mul(per_step);
        planning.used.seconds += seconds;
        planning.good = Some(shape);
        planning.is_stuck = false;
        let each = |value: f64| value / steps.max(1) as f64;
        let now = Pace { seconds: each(seconds), cost: each(paid - paid_before) };
        let mixed = |before: f64, now: f64| LATEST * now + (1.0 - LATEST) * before;
        let pace = match planning.pace {
            Some((of, before)) if of == shape => {
                Pace { seconds: mixed(before.seconds, now.seconds), cost: mixed(before.cost, now.cost) }
            }
            _ => now,
        };
        planning.pace = Some((shape, pace));
    }

    /// Whether a validation is sure to fit into the budget; it is ended before it exceeds that.
    pub(super) fn may_validate(&mut self) -> Result<(), Halt> {
        let tests = self.workshop.data.as_ref().map_or(0, |data| data.manifest.test.count);
        let samples = f64::from(self.cursor().batch.get()) * f64::from(self.shape.lanes());
        let (paid, shape) = (self.accounting.paid, self.shape);
        let (second, at_once) = most_second(&self.accounting, &self.workshop, &shape);
        let Some(planning) = &mut self.planning else { return Ok(()) };
        let Some(left) = planning.course.allowance(&planning.used(paid)).map(|left| left - at_once) else {
            return Ok(());
        };
        // A sample costs no more than one that is trained on.
        let guess = planning.pace.map(|(_, pace)| pace.cost * (tests as f64 / samples.max(1.0)).ceil());
        let expected = planning.validation.or(guess).unwrap_or(0.0);
        if left <= expected {
            return Err(Halt::OutOfBudget("the validation of the epoch might exceed it".to_owned()));
        }
        self.team.spend_until = in_seconds(left / second);
        Ok(())
    }

    /// A validation is over, before which the job had paid so much.
    pub(super) fn note_validation(&mut self, paid_before: f64) {
        self.team.spend_until = None;
        let paid = self.accounting.paid;
        if let Some(planning) = &mut self.planning {
            planning.validation = Some((paid - paid_before).max(planning.validation.unwrap_or(0.0)));
        }
    }

    /// Why the job is over, with what its plan has to say of it.
    pub(super) fn ended(&self, reason: String) -> String {
        match &self.planning {
            Some(planning) => planning.course.ended(reason, &planning.used(self.accounting.paid)),
            None => reason,
        }
    }

    /// What is said of a job that has ended for its budget.
    pub(super) fn used_up(&self, why: &str) -> String {
        self.planning.as_ref().map_or_else(|| why.to_owned(), |planning| planning.course.used_up(why))
    }

    /// Writes down what the job may have spent before it has, where a limit must hold after a crash.
    async fn note_spending(&mut self, steps: u64, second: f64) -> Result<(), Halt> {
        let paid = self.accounting.paid;
        let Some(planning) = self.planning.as_mut().filter(|planning| planning.has_limits()) else { return Ok(()) };
        let (used, spent) = (planning.used(paid), *planning.course.planner().spent());
        let now = SpentAtMost { seconds: spent.seconds + used.elapsed, cost: spent.cost + used.cost };
        let limits = *planning.course.planner().limits();
        let round = planning.pace.map_or(0.0, |(_, pace)| 2.0 * pace.seconds * steps as f64);
        // Work that a crash costs is paid for twice: no more of it than a small part of what there is.
        let part = |limit: Option<f64>, each: f64| limit.map_or(f64::INFINITY, |limit| NOTED_PART * limit / each);
        let ahead = NOTED_AHEAD.min(part(limits.cost, second)).min(part(limits.seconds, 1.0)).max(round);
        if now.cost + second * round <= planning.noted.cost && now.seconds + round <= planning.noted.seconds {
            return Ok(());
        }
        let most = SpentAtMost { seconds: now.seconds + ahead, cost: now.cost + second * ahead };
        planning.noted = most;
        self.keeper.note_spending(most).await
    }

    /// The job goes no further now: what it has spent is known exactly.
    pub(super) async fn note_all_spending(&mut self) {
        let paid = self.accounting.paid;
        let Some(planning) = self.planning.as_mut().filter(|planning| planning.has_limits()) else { return };
        let (used, spent) = (planning.used(paid), *planning.course.planner().spent());
        let now = SpentAtMost { seconds: spent.seconds + used.elapsed, cost: spent.cost + used.cost };
        planning.noted = now;
        if let Err(halt) = self.keeper.note_spending(now).await {
            tracing::warn!(job = %self.workshop.brief.job, ?halt, "what a job has spent could not be written down");
        }
    }

    /// What it costs, at most, to move what workers exchange in one round.
    fn moved_cost(&self) -> f64 {
        // There and back, and once more where workers merge.
        const WAYS: f64 = 3.0;
        let sizes = self.team.sizes;
        let bytes = 4.0 * (sizes.payload.max(sizes.weights) + sizes.buffers) as f64;
        self.accounting.prices.gib_moved * WAYS * bytes * f64::from(self.shape.workers) / GIB
    }
}

/// A moment so many seconds from now, if that is one.
fn in_seconds(seconds: f64) -> Option<Instant> {
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    Instant::now().checked_add(span)
}

#[cfg(test)]
mod tests {
    use weft_core::spec::JobSpec;

    use super::*;

    fn counting(spec: &CheckedSpec, workers: u32) -> Counting<'_> {
        let shape = Shape { workers, ..spec.first_shape(None) };
        Counting { spec, samples: Some(1_000), shape }
    }

    #[test]
    fn the_same_work_has_as_many_steps_whoever_does_it() {
        let spec = JobSpec { batch: 10, epochs: 3, ..JobSpec::new("f", None) }.check().unwrap();
        for workers in [1, 2, 5] {
            let counting = counting(&spec, workers);
            assert_eq!((counting.from(0), counting.of(0), counting.samples(0)), (300, 100, 10));
            assert_eq!(counting.per_step(), u64::from(workers));
        }
        let spec = JobSpec { global_batch: Some(20), epochs: 3, ..JobSpec::new("f", None) }.check().unwrap();
        for workers in [1, 2, 5] {
            let counting = counting(&spec, workers);
            assert_eq!((counting.from(1), counting.samples(0), counting.per_step()), (100, 20, 1));
        }
    }

    #[test]
    fn a_schedule_of_batches_changes_what_a_step_is() {
        let words = JobSpec { batch: 10, epochs: 4, batch_schedule: [(3, 20)].into(), ..JobSpec::new("f", None) };
        let spec = words.check().unwrap();
        let counting = counting(&spec, 2);
        assert_eq!((counting.samples(0), counting.samples(2)), (10, 20));
        assert_eq!((counting.from(0), counting.from(2)), (300, 100));
    }
}
