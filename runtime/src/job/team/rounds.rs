//! Workers that meet at the end of each round: does what [`Barrier`](weft_core::sync::Barrier) says, and tells it what
//! happens.

use std::sync::Arc;
use std::time::Instant;

use weft_core::sync::barrier::MergeResult;
use weft_core::sync::{Action, Event, MergePlan, Who};

use super::{Contributions, Director, Halt, Happened, MergeOrder, News, Report, Task, Team, WorkOrder, WorkerError};

/// What a round came to.
#[derive(Default)]
pub struct Round {
    pub number: u64,
    pub contributions: Contributions,
    /// Where the merged numbers lie, if workers merged.
    pub results: Vec<MergeResult>,
}

impl Team {
    /// One round: every worker that takes part gets an assignment, and if there is a plan, workers merge what they have.
    pub async fn round(
        &mut self,
        task: Task,
        takes_part: impl Fn(u32) -> bool,
        merges: Option<Arc<MergePlan>>,
        director: &mut dyn Director,
    ) -> Result<Round, Halt> {
        self.task = Some(task);
        self.contributions.iter_mut().for_each(|contribution| *contribution = None);
        // One that was told of may have ended without a word: with a straggler that was left behind.
        if let Some(silent) = self.silence.heard(Instant::now()) {
            (self.news)(News::Heard(silent));
        }
        let begin = self.barrier.begin(takes_part, merges);
        self.until_complete(begin, director).await
    }

    /// Has a result merged again that was not found where it should be.
    pub async fn merge_again(&mut self, round: u64, merge: usize, director: &mut dyn Director) -> Result<Round, Halt> {
        "a merged result was not found in the channel".clone_into(&mut self.last_error);
        self.last_error_passes = true;
        let again = self.barrier.handle(Event::ResultMissing { round, merge });
        self.until_complete(again, director).await
    }

    async fn until_complete(&mut self, actions: Vec<Action>, director: &mut dyn Director) -> Result<Round, Halt> {
        let alarm = |team: &Self| team.straggler.map(|straggler| Instant::now() + straggler);
        let mut overdue = alarm(self);
        let mut complete = self.obey(actions, director)?;
        loop {
            if let Some(round) = complete {
                return Ok(round);
            }
            complete = self.next(overdue, director).await?;
            // Whoever is started again has as long as the others had.
            if overdue.is_some_and(|overdue| overdue <= Instant::now()) {
                overdue = alarm(self);
            }
        }
    }

    /// Waits for a message, an order or a deadline, and handles it.
    pub(super) async fn next(
        &mut self,
        overdue: Option<Instant>,
        director: &mut dyn Director,
    ) -> Result<Option<Round>, Halt> {
        match self.happen(overdue).await? {
            None => Ok(None),
            Some(Happened::Said(report)) => self.hear(*report, director),
            Some(Happened::Killed(worker)) => match self.who(worker) {
                Some(who) => self.lose(who, &WorkerError::Killed, director),
                None => Ok(None),
            },
            Some(Happened::Overdue) => {
                self.note_straggler();
                let actions = self.barrier.handle(Event::Overdue { round: self.barrier.round() });
                for action in &actions {
                    if let Action::Abandon(who) = action {
                        self.tell_lost(who.worker, self.last_error.clone());
                    }
                }
                self.obey(actions, director)
            }
        }
    }

    fn hear(&mut self, report: Report, director: &mut dyn Director) -> Result<Option<Round>, Halt> {
        let event = match report {
            Report::Ready { who, declaration, used } => {
                self.overhead.push((who.worker, used));
                if self.is_current(who) {
                    self.waiting_for = self.waiting_for.saturating_sub(1);
                    self.declaration = self.declaration.take().or(declaration);
                }
                Event::Ready(who)
            }
            Report::Done { who, round, generation, contribution } => {
                if !self.is_current(who) || round != self.barrier.round() {
                    return Ok(None);
                }
                if let Some(problem) = self.misfit(&contribution) {
                    return self.lose(who, &WorkerError::Train(problem), director);
                }
                let samples = contribution.samples;
                self.contributions[who.worker as usize] = Some(contribution);
                Event::Trained { who, round, generation, samples }
            }
            Report::Merged { who, round, merge, generation, used } => {
                self.overhead.push((who.worker, used));
                Event::Merged { who, round, merge, generation }
            }
            Report::Missing { who, round, merge, generation, sources } => {
                "parts of its workers' contributions were not found in the channel".clone_into(&mut self.last_error);
                self.last_error_passes = true;
                Event::Missing { who, round, merge, generation, sources }
            }
            Report::ModelMissing { who, round, generation } => {
                if self.is_current(who) && round == self.barrier.round() {
                    let assignment = Box::new(director.in_full(who, round)?);
                    self.order(who, WorkOrder::Work { assignment, generation });
                }
                return Ok(None);
            }
            Report::Lost { who, error } => return self.lose(who, &error, director),
            Report::Progress { who, steps, loss, samples } => {
                let steps = self.epoch_steps.and(steps);
                (self.news)(News::Progress { worker: who.worker, steps, loss, samples });
                return Ok(None);
            }
            Report::Computes => return Ok(None),
        };
        let actions = self.barrier.handle(event);
        self.obey(actions, director)
    }

    fn lose(&mut self, who: Who, error: &WorkerError, director: &mut dyn Director) -> Result<Option<Round>, Halt> {
        if !self.note_lost(who, error)? {
            return Ok(None);
        }
        let actions = self.barrier.handle(Event::Lost(who));
        self.obey(actions, director)
    }

    pub(super) fn obey(&mut self, actions: Vec<Action>, director: &mut dyn Director) -> Result<Option<Round>, Halt> {
        let mut complete = None;
        for action in actions {
            match action {
                Action::Start(who) => self.start_worker(who),
                Action::Assign { who, round, generation } => {
                    let assignment = director.assignment(who, round)?;
                    self.order(who, WorkOrder::Work { assignment: Box::new(assignment), generation });
                }
                Action::Merge { who, round, merge, generation, parts, total } => {
                    self.order(who, WorkOrder::Merge(MergeOrder { round, merge, generation, parts, total }));
                }
                // The next one takes its place.
                Action::Abandon(who) => self.handles[who.worker as usize] = None,
                Action::Complete { round, contributions, results } => {
                    let take = |(worker, _): (u32, u64)| Some((worker, self.contributions[worker as usize].take()?));
                    let contributions = contributions.into_iter().filter_map(take).collect();
                    complete = Some(Round { number: round, contributions, results });
                }
                Action::GiveUp { worker, .. } => return Err(self.give_up(worker)),
            }
        }
        Ok(complete)
    }
}
