//! The merges of a round: who is told to merge what, and what is made again when it is lost.
//!
//! A merge is ordered as soon as all its parts are there and its worker is idle, so that nobody ever waits on a
//! channel. Which contributions count is one set for the whole round, so every shard is merged of the same ones.
//!
//! What is lost is made again, each time under the next generation:
//! - A worker that dies takes with it what only it had ([`MergePlan::keeps`]). With [`OnLoss::Wait`] its next claim
//!   hands in its contribution again and merges again; nobody else could do so earlier, because a merger always has a
//!   part of its own that nobody else can get. With [`OnLoss::Drop`] its contribution is taken out of all merges, and
//!   another worker merges in its place.
//! - A part that cannot be read is the same as one that was lost: the worker hands it in again, or its contribution is
//!   left out everywhere. The result of a merge that cannot be read is merged again.
//! - Merges of which nothing has changed stay as they are. A contribution that is made again has the same bits, so what
//!   was merged of it before stays, too.
//!
//! The round waits for the results that somebody takes. Every peer takes its own; one that was started again takes the
//! model from the coordinator, so its result is not waited for, but the coordinator needs that of one.

use std::sync::Arc;

use super::{Action, Barrier, Delivery, Doing, MergePart, MergeResult, OnLoss, Seat, Who};
use crate::sync::topology::{MergePlan, Source};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MergeProgress {
    Todo,
    Ordered { who: Who, generation: u32, samples: u64 },
    Done { who: Who, generation: u32, samples: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Merges {
    pub(super) plan: Arc<MergePlan>,
    /// By merge.
    progress: Vec<MergeProgress>,
    /// By merge: how often its result was lost.
    misses: Vec<u32>,
    /// By merge: a source that was not there when it was looked at last. It is looked at first, as most merges wait for
    /// the same few workers.
    waits_for: Vec<usize>,
}

impl Merges {
    pub(super) fn new(plan: Arc<MergePlan>) -> Self {
        let count = plan.merges.len();
        Self { plan, progress: vec![MergeProgress::Todo; count], misses: vec![0; count], waits_for: vec![0; count] }
    }

    #[cfg(test)]
    pub(super) fn essence(&self) -> impl std::hash::Hash + PartialEq + std::fmt::Debug + use<> {
        (self.progress.clone(), self.misses.clone())
    }

    fn is_done(&self, merge: usize) -> bool {
        matches!(self.progress[merge], MergeProgress::Done { .. })
    }
}

impl Barrier {
    /// Whether a result counts that this worker has made.
    #[cfg(test)]
    pub(super) fn has_merged(&self, by: Who) -> bool {
        let mut progress = self.merges.iter().flat_map(|merges| &merges.progress);
        progress.any(|progress| matches!(progress, MergeProgress::Done { who, .. } if *who == by))
    }

    pub(super) fn merged(&mut self, who: Who, round: u64, merge: usize, generation: u32) {
        let Some(samples) = self.answer(who, round, merge, generation) else { return };
        if let Some(merges) = &mut self.merges {
            merges.progress[merge] = MergeProgress::Done { who, generation, samples };
        }
    }

    pub(super) fn missing(
        &mut self,
        who: Who,
        round: u64,
        merge: usize,
        generation: u32,
        sources: &[Source],
        actions: &mut Vec<Action>,
    ) {
        if self.answer(who, round, merge, generation).is_none() {
            return;
        }
        let Some(merges) = &mut self.merges else { return };
        merges.progress[merge] = MergeProgress::Todo;
        if !self.open {
            return;
        }
        let from = merges.plan.merges[merge].from.clone();
        let mut is_known = false;
        for source in sources.iter().filter(|source| from.contains(source)) {
            is_known = true;
            match *source {
                Source::Worker(worker) => self.contribution_missing(worker, generation, actions),
                Source::Merge(before) => self.merge_missing(before, generation, actions),
            }
        }
        // A worker that cannot say what it misses must not be asked for ever.
        if !is_known {
            self.count_miss(merge, who.worker, actions);
        }
    }

    /// The coordinator does not find a result: the round is open again.
    pub(super) fn result_missing(&mut self, round: u64, merge: usize, actions: &mut Vec<Action>) {
        let is_result = |merges: &&Merges| merge < merges.progress.len() && merges.plan.consumers(merge).is_empty();
        if self.open || round != self.round || self.merges.as_ref().filter(is_result).is_none() {
            return;
        }
        self.open = true;
        self.merge_missing(merge, self.generation, actions);
    }

    /// The worker has ended what it was told to do. Returns the samples of the merge if the answer still counts.
    fn answer(&mut self, who: Who, round: u64, merge: usize, generation: u32) -> Option<u64> {
        let is_now = round == self.round;
        let place = self.current(who).filter(|place| place.doing == Doing::Merging { round, merge, generation })?;
        place.doing = Doing::Idle;
        match self.merges.as_ref().filter(|_| is_now)?.progress.get(merge)? {
            MergeProgress::Ordered { who: ordered, generation: under, samples } => {
                (*ordered == who && *under == generation).then_some(*samples)
            }
            _ => None,
        }
    }

    /// A part of the contribution was not there for a merge of this generation.
    fn contribution_missing(&mut self, worker: u32, generation: u32, actions: &mut Vec<Action>) {
        let Some(place) = self.places.get_mut(worker as usize) else { return };
        // It may be on its way again, or here again, already.
        if place.handed_in().is_none_or(|contribution| contribution.generation > generation) {
            return;
        }
        place.misses += 1;
        if place.misses >= self.attempts {
            actions.push(Action::GiveUp { worker, round: self.round });
        }
        self.lose_contribution(worker);
    }

    fn merge_missing(&mut self, merge: usize, generation: u32, actions: &mut Vec<Action>) {
        let Some(merges) = &mut self.merges else { return };
        let MergeProgress::Done { who, generation: under, .. } = merges.progress[merge] else { return };
        if under <= generation {
            merges.progress[merge] = MergeProgress::Todo;
            self.count_miss(merge, who.worker, actions);
        }
    }

    fn count_miss(&mut self, merge: usize, worker: u32, actions: &mut Vec<Action>) {
        let Some(merges) = &mut self.merges else { return };
        self.generation += 1;
        merges.misses[merge] += 1;
        if merges.misses[merge] >= self.attempts {
            actions.push(Action::GiveUp { worker, round: self.round });
        }
    }

    /// What the worker handed in is not there: it is made again, or left out of all merges.
    fn lose_contribution(&mut self, worker: u32) {
        self.generation += 1;
        let (Some(place), Some(merges)) = (self.places.get_mut(worker as usize), &mut self.merges) else { return };
        match (self.on_loss, &mut place.contribution) {
            (OnLoss::Wait, Some(contribution)) => contribution.is_missing = true,
            _ => {
                (place.expected, place.contribution) = (false, None);
                for (merge, descends) in merges.plan.descends_from(worker).into_iter().enumerate() {
                    if descends {
                        merges.progress[merge] = MergeProgress::Todo;
                    }
                }
            }
        }
    }

    /// The worker has ended: what it was merging is still to be merged.
    pub(super) fn forget_orders_to(&mut self, lost: Who) {
        for progress in self.merges.iter_mut().flat_map(|merges| &mut merges.progress) {
            if matches!(progress, MergeProgress::Ordered { who, .. } if *who == lost) {
                *progress = MergeProgress::Todo;
            }
        }
    }

    /// Whatever is needed, but was only in the memory of a worker that has ended, is made again or left out. That may
    /// take other things with it, so it is looked for until nothing more is found.
    pub(super) fn forget_what_only_the_lost_had(&mut self) {
        while self.forget_results_of_the_lost() || self.forget_contributions_of_the_lost() {}
    }

    fn forget_results_of_the_lost(&mut self) -> bool {
        let Some(merges) = &mut self.merges else { return false };
        let plan = merges.plan.clone();
        let mut has_forgotten = false;
        // Those that take a result come after it, so what becomes of them is known when it is looked at.
        for (index, merge) in plan.merges.iter().enumerate().rev() {
            let MergeProgress::Done { who, .. } = merges.progress[index] else { continue };
            let is_lost = self.places.get(who.worker as usize).is_none_or(|place| place.claim != who.claim);
            let is_needed = plan.consumers(index).iter().any(|&consumer| !merges.is_done(consumer));
            if is_lost && is_needed && plan.keeps(Source::Merge(index), merge.shard, who.worker) {
                merges.progress[index] = MergeProgress::Todo;
                self.generation += 1;
                has_forgotten = true;
            }
        }
        has_forgotten
    }

    fn forget_contributions_of_the_lost(&mut self) -> bool {
        let Some(merges) = &self.merges else { return false };
        let is_needed = |worker: u32| {
            let own = Source::Worker(worker);
            let undone = merges.plan.merges.iter().enumerate().filter(|(index, _)| !merges.is_done(*index));
            let mut by_it = undone.filter(|(_, merge)| merge.by == worker && merge.from.contains(&own));
            by_it.any(|(_, merge)| merges.plan.keeps(own, merge.shard, worker))
        };
        let is_lost = |(worker, place): (u32, &Seat)| {
            let contribution = place.handed_in().filter(|contribution| contribution.claim != place.claim);
            (contribution.is_some() && is_needed(worker)).then_some(worker)
        };
        let lost: Vec<u32> = (0..).zip(&self.places).filter_map(is_lost).collect();
        lost.iter().for_each(|&worker| self.lose_contribution(worker));
        !lost.is_empty()
    }

    /// Tells whoever is idle to merge what is there.
    pub(super) fn order_merges(&mut self, actions: &mut Vec<Action>) {
        let Some(mut merges) = self.merges.take() else { return };
        let (round, generation) = (self.round, self.generation);
        for (merge, is_wanted) in self.wanted(&merges).into_iter().enumerate() {
            if !is_wanted || merges.progress[merge] != MergeProgress::Todo {
                continue;
            }
            let Some(worker) = self.merger(&merges, merge) else { continue };
            let parts = match self.parts(&merges, merge) {
                Ok(parts) if !parts.is_empty() => parts,
                Ok(_) => continue,
                Err(source) => {
                    merges.waits_for[merge] = source;
                    continue;
                }
            };
            let place = &mut self.places[worker as usize];
            let who = Who { worker, claim: place.claim };
            place.doing = Doing::Merging { round, merge, generation };
            let total = parts.iter().map(|part| part.samples).sum();
            merges.progress[merge] = MergeProgress::Ordered { who, generation, samples: total };
            actions.push(Action::Merge { who, round, merge, generation, parts, total });
        }
        self.merges = Some(merges);
    }

    /// Which merges the round needs, or needed for those that are done.
    fn wanted(&self, merges: &Merges) -> Vec<bool> {
        let plan = &merges.plan;
        let mut wanted = vec![false; plan.merges.len()];
        for shard in 0..plan.shards {
            let results = plan.results(shard);
            let place = |merge: usize| self.places.get(plan.merges[merge].by as usize);
            let takes = |merge: usize| place(merge).is_some_and(|place| place.is_assigned);
            if let [only] = results {
                wanted[*only] = true;
            } else if results.iter().any(|&merge| takes(merge)) {
                results.iter().for_each(|&merge| wanted[merge] = takes(merge));
            } else if !results.iter().any(|&merge| merges.is_done(merge)) {
                // Nobody takes it but the coordinator.
                let is_there = |&merge: &usize| place(merge).is_some_and(|place| place.doing != Doing::Starting);
                if let Some(merge) = results.iter().copied().find(is_there) {
                    wanted[merge] = true;
                }
            }
        }
        for merge in (0..wanted.len()).rev() {
            wanted[merge] |= plan.consumers(merge).iter().any(|&next| wanted[next] && !merges.is_done(next));
        }
        wanted
    }

    /// The idle worker that is to do a merge: the planned one, and only where it is lost and dropped another one.
    fn merger(&self, merges: &Merges, merge: usize) -> Option<u32> {
        let is_idle = |worker: u32| self.places.get(worker as usize).is_some_and(|place| place.doing == Doing::Idle);
        let planned = &merges.plan.merges[merge];
        let is_there = self.places.get(planned.by as usize).is_some_and(|place| place.doing != Doing::Starting);
        if is_there || self.on_loss == OnLoss::Wait {
            return Some(planned.by).filter(|&worker| is_idle(worker));
        }
        // What one worker merges in one layer of a shard has one name, so nobody does two such merges.
        let is_free = |worker: u32| {
            let others = merges.plan.merges.iter().zip(&merges.progress).enumerate();
            !others.filter(|(other, _)| *other != merge).any(|(_, (other, progress))| {
                let by = match progress {
                    MergeProgress::Todo => other.by,
                    MergeProgress::Ordered { who, .. } | MergeProgress::Done { who, .. } => who.worker,
                };
                (other.layer, other.shard) == (planned.layer, planned.shard) && (other.by == worker || by == worker)
            })
        };
        let count = self.places.len() as u32;
        let after = (1..count).map(|distance| (planned.by + distance) % count);
        after.into_iter().find(|&worker| is_idle(worker) && is_free(worker))
    }

    /// The parts of a merge in their order. Fails with the place in `from` of one that is not there.
    fn parts(&self, merges: &Merges, merge: usize) -> Result<Vec<MergePart>, usize> {
        let from = &merges.plan.merges[merge].from;
        let first = merges.waits_for[merge];
        if let Some(source) = from.get(first) {
            self.part(merges, *source).map_err(|()| first)?;
        }
        let mut parts = Vec::new();
        for (index, source) in from.iter().enumerate() {
            parts.extend(self.part(merges, *source).map_err(|()| index)?);
        }
        Ok(parts)
    }

    /// One part, or none if nothing of it counts in this round. Fails if it is not there yet.
    fn part(&self, merges: &Merges, source: Source) -> Result<Option<MergePart>, ()> {
        match source {
            Source::Worker(worker) => {
                let Some(place) = self.places.get(worker as usize).filter(|place| place.expected) else {
                    return Ok(None);
                };
                let Delivery { claim, samples, .. } = place.handed_in().ok_or(())?;
                Ok(Some(MergePart { source, who: Who { worker, claim }, layer: 0, samples }))
            }
            Source::Merge(merge) => match merges.progress[merge] {
                MergeProgress::Done { who, samples, .. } => {
                    Ok(Some(MergePart { source, who, layer: merges.plan.merges[merge].layer, samples }))
                }
                _ if self.is_empty(merges, merge) => Ok(None),
                _ => Err(()),
            },
        }
    }

    /// Whether nothing that a merge takes counts in this round.
    fn is_empty(&self, merges: &Merges, merge: usize) -> bool {
        merges.plan.merges[merge].from.iter().all(|source| match *source {
            Source::Worker(worker) => !self.places.get(worker as usize).is_some_and(|place| place.expected),
            Source::Merge(before) => self.is_empty(merges, before),
        })
    }

    /// Workers that are merging, and those that are being started and have something to merge.
    pub(super) fn late_mergers(&self) -> Vec<u32> {
        let Some(merges) = &self.merges else { return Vec::new() };
        let merging = |(worker, place): (u32, &Seat)| match place.doing {
            Doing::Merging { .. } => Some(worker),
            _ => None,
        };
        let mut late: Vec<u32> = (0..).zip(&self.places).filter_map(merging).collect();
        for (merge, is_wanted) in self.wanted(merges).into_iter().enumerate() {
            let by = merges.plan.merges[merge].by;
            let is_starting = self.places.get(by as usize).is_some_and(|place| place.doing == Doing::Starting);
            if is_wanted
                && is_starting
                && merges.progress[merge] == MergeProgress::Todo
                && self.parts(merges, merge).is_ok()
            {
                late.push(by);
            }
        }
        late
    }

    /// The results of the round, as soon as it needs nothing more.
    pub(super) fn results(&self) -> Option<Vec<MergeResult>> {
        let nobody = !self.places.iter().any(|place| place.expected);
        let Some(merges) = self.merges.as_ref().filter(|_| !nobody) else {
            return self.places.iter().all(|place| !place.owes()).then(Vec::new);
        };
        let (plan, wanted) = (&merges.plan, self.wanted(merges));
        let mut found = Vec::new();
        for shard in 0..plan.shards {
            let before = found.len();
            for &merge in plan.results(shard) {
                match merges.progress[merge] {
                    MergeProgress::Done { who, .. } => found.push(MergeResult { shard, merge, who }),
                    _ if wanted[merge] => return None,
                    _ => {}
                }
            }
            if found.len() == before {
                return None;
            }
        }
        Some(found)
    }
}
