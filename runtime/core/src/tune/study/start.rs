//! What may start next, what has to stop, and when it is over.

use super::{Action, End, State, Study, Trial};
use crate::tune::chance::{Chance, Purpose};
use crate::tune::prune::{self, Climber};
use crate::tune::sampler::Seen;
use crate::tune::space::Point;

/// How often a trial that does not fit lets others pass, for each trial that may run at once.
const PATIENCE: u32 = 4;

impl Study {
    /// Starts whatever may start, stops what must stop, and ends what has nothing more to do.
    pub(super) fn advance(&mut self, actions: &mut Vec<Action>) {
        if self.kept.is_over {
            return;
        }
        self.watch_deadline();
        self.watch_budget(actions);
        if self.kept.ending.is_none() {
            self.start_all(actions);
        }
        if self.kept.ending.is_some() {
            self.stop_all(actions);
            if !self.kept.trials.iter().any(|trial| trial.state.is_in_flight()) {
                self.close(actions);
            }
        }
    }

    fn watch_deadline(&mut self) {
        if let (Some(now), Some(deadline)) = (self.kept.now, self.settings.deadline)
            && now >= deadline
        {
            self.end(End::Deadline { deadline });
        }
    }

    /// Stops trials, the latest first, whose next epochs would together exceed the budget.
    fn watch_budget(&mut self, actions: &mut Vec<Action>) {
        let Some(budget) = self.settings.budget else { return };
        let spent = self.spent();
        let dearest = self.dearest_epoch().unwrap_or(0.0);
        let next = |trial: &Trial| match trial.state {
            State::Running if trial.epoch() < trial.until => trial.epoch_cost().unwrap_or(dearest),
            _ => 0.0,
        };
        let mut needed: f64 = self.kept.trials.iter().map(next).sum();
        let is_nothing_left = spent >= budget;
        for index in (0..self.kept.trials.len()).rev() {
            let trial = &self.kept.trials[index];
            let is_unaffordable = fits(spent + needed, budget).is_none() || is_nothing_left;
            if trial.state == State::Running && trial.epoch() < trial.until && is_unaffordable {
                needed -= next(trial);
                actions.push(Action::Stop { trial: trial.number });
                self.kept.trials[index].state = State::Stopping(Box::new(State::Stopped));
            }
        }
        if is_nothing_left {
            self.end(End::Budget { spent, budget });
        }
    }

    /// What the dearest epoch cost so far, of any trial.
    fn dearest_epoch(&self) -> Option<f64> {
        self.kept.trials.iter().filter_map(Trial::epoch_cost).max_by(f64::total_cmp)
    }

    /// Whether so many more epochs stay within the budget, with what is running and has its epochs before it.
    fn can_afford(&self, epochs: u32) -> bool {
        let Some(budget) = self.settings.budget else { return true };
        let running = self.kept.trials.iter().filter(|trial| trial.state.is_in_flight());
        let Some(dearest) = self.dearest_epoch() else {
            // The first trial shows what an epoch costs.
            return running.count() == 0 && self.spent() < budget;
        };
        let committed: u32 = running.map(|trial| trial.until.saturating_sub(trial.epoch())).sum();
        fits(self.spent() + f64::from(committed + epochs) * dearest, budget).is_some()
    }

    fn start_all(&mut self, actions: &mut Vec<Action>) {
        let is_driven = self.settings.parallel == 0;
        loop {
            let in_flight = self.kept.trials.iter().filter(|trial| trial.state.is_in_flight()).count();
            let has_room = if is_driven { self.kept.asked > 0 } else { in_flight < self.settings.parallel as usize };
            if !has_room {
                return;
            }
            let Some(number) = self.next_to_start() else {
                if in_flight == 0 {
                    self.end_for_lack();
                }
                return;
            };
            self.kept.asked = self.kept.asked.saturating_sub(1);
            let trial = &mut self.kept.trials[number as usize];
            (trial.state, trial.passed) = (State::Running, 0);
            let trial = &self.kept.trials[number as usize];
            actions.push(if trial.order.is_some() { self.resume(trial) } else { Self::start(trial) });
        }
    }

    /// The first that fits of those that go on, those that wait, and new ones. Whoever does not fit is passed.
    fn next_to_start(&mut self) -> Option<u32> {
        let free = self.settings.max_workers.map_or(u32::MAX, |cap| cap.saturating_sub(self.workers()));
        let patience = PATIENCE.saturating_mul(self.settings.parallel.max(1));
        let mut passed = Vec::new();
        for (number, until) in self.promotions() {
            let trial = &self.kept.trials[number as usize];
            if !self.can_afford(until.saturating_sub(trial.epoch())) {
                continue;
            }
            if trial.workers <= free {
                self.kept.trials[number as usize].until = until;
                return Some(self.passing(&passed, number));
            }
            if trial.passed >= patience {
                return None;
            }
            passed.push(number);
        }
        let mut waiting: Vec<u32> =
            (self.kept.trials.iter()).filter(|trial| trial.state == State::Waiting).map(|trial| trial.number).collect();
        let most = self.settings.parallel.max(1) as usize;
        let mut next = 0;
        loop {
            if next == waiting.len() {
                // Not more are drawn ahead than could run: a later one would be drawn with more known.
                if waiting.len() >= most {
                    return self.finalist_if_idle(&passed);
                }
                match self.draw() {
                    Some(number) => waiting.push(number),
                    None => return self.finalist_if_idle(&passed),
                }
            }
            let trial = &self.kept.trials[waiting[next] as usize];
            if !self.can_afford(trial.until) {
                return self.finalist_if_idle(&passed);
            }
            if trial.workers <= free {
                return Some(self.passing(&passed, waiting[next]));
            }
            if trial.passed >= patience {
                return None;
            }
            passed.push(waiting[next]);
            next += 1;
        }
    }

    /// Remembers whom a trial passes.
    fn passing(&mut self, passed: &[u32], number: u32) -> u32 {
        for &other in passed {
            self.kept.trials[other as usize].passed += 1;
        }
        number
    }

    /// Paused trials that are among the best of their rung, and up to where they go on.
    fn promotions(&self) -> Vec<(u32, u32)> {
        let climbers = self.climbers();
        let each = self.ladders.iter().zip(&climbers).filter_map(|(ladder, climbers)| {
            let trial = prune::promoted(self.settings.pruner, ladder.len(), climbers)?;
            Some((trial, ladder[self.kept.trials[trial as usize].rungs]))
        });
        let mut promotions: Vec<(u32, u32)> = each.collect();
        // A trial that paused before its rung, by itself, goes on to it.
        let early = self.kept.trials.iter().filter(|trial| trial.state == State::Paused && trial.epoch() < trial.until);
        promotions.extend(early.map(|trial| (trial.number, trial.until)));
        promotions
    }

    /// When nothing else is to be done: the best of a ladder goes on, until one comes to its end.
    fn finalist_if_idle(&mut self, passed: &[u32]) -> Option<u32> {
        if self.kept.trials.iter().any(|trial| trial.state.is_in_flight()) || self.kept.asked > 0 && self.can_draw() {
            return None;
        }
        let climbers = self.climbers();
        let found = self.ladders.iter().zip(&climbers).find_map(|(ladder, climbers)| {
            let trial = prune::finalist(ladder.len(), climbers)?;
            let until = ladder[self.kept.trials[trial as usize].rungs];
            let more = until.saturating_sub(self.kept.trials[trial as usize].epoch());
            self.can_afford(more).then_some((trial, until))
        });
        let (number, until) = found?;
        self.kept.trials[number as usize].until = until;
        Some(self.passing(passed, number))
    }

    /// The trials of each ladder.
    fn climbers(&self) -> Vec<Vec<Climber>> {
        let turned = |value| self.settings.direction.turned(value);
        let mut climbers = vec![Vec::new(); self.ladders.len()];
        for trial in &self.kept.trials {
            if matches!(trial.state, State::Failed(_)) {
                continue;
            }
            let ladder = &self.ladders[trial.ladder];
            let rungs =
                ladder[..trial.rungs].iter().filter_map(|rung| trial.best_until(trial.epoch().min(*rung), turned));
            let is_paused = trial.state == State::Paused && trial.epoch() >= trial.until;
            climbers[trial.ladder].push(Climber { trial: trial.number, rungs: rungs.collect(), is_paused });
        }
        climbers
    }

    fn can_draw(&self) -> bool {
        !self.kept.is_exhausted && self.kept.trials.len() < self.settings.trials as usize
    }

    /// Another trial, which waits.
    fn draw(&mut self) -> Option<u32> {
        if !self.can_draw() {
            return None;
        }
        let number = self.kept.trials.len() as u32;
        let Some(point) = self.next_point(number) else {
            self.kept.is_exhausted = true;
            return None;
        };
        let ladder = self.settings.pruner.ladder_of(&self.ladders, number);
        self.kept.trials.push(Trial {
            number,
            workers: self.settings.workers_of(&point),
            point,
            state: State::Waiting,
            until: self.ladders[ladder][0],
            reports: Vec::new(),
            cost: 0.0,
            ladder,
            rungs: 0,
            order: None,
            passed: 0,
        });
        Some(number)
    }

    fn next_point(&mut self, number: u32) -> Option<Point> {
        if let Some(given) = self.settings.enqueued.get(number as usize) {
            let others =
                self.settings.space.draw(&mut Chance::new(self.settings.seed, Purpose::Point, u64::from(number)));
            // Settings were checked: what was given fits.
            return self.settings.space.complete(given, &others).ok().or(Some(others));
        }
        let (done, pending) = self.seen();
        self.sampler.propose(u64::from(number), Seen { done: &done, pending: &pending })
    }

    /// Nothing runs and nothing can start.
    fn end_for_lack(&mut self) {
        let trials = self.kept.trials.len() as u32;
        let is_waiting = self.kept.trials.iter().any(|trial| trial.state == State::Waiting);
        let first = self.kept.trials.iter().find_map(|trial| match &trial.state {
            State::Failed(why) => Some(why.clone()),
            _ => None,
        });
        let has_value =
            self.kept.trials.iter().any(|trial| trial.order.is_some() && !matches!(trial.state, State::Failed(_)));
        let reason = match (first, self.settings.budget) {
            (_, Some(budget)) if is_waiting => End::Budget { spent: self.spent(), budget },
            (Some(first), _) if !has_value => End::AllFailed { trials, first },
            _ if self.kept.is_exhausted => End::Exhausted { points: trials },
            _ => End::Complete { trials },
        };
        self.end(reason);
    }

    fn stop_all(&mut self, actions: &mut Vec<Action>) {
        for trial in &mut self.kept.trials {
            match trial.state {
                State::Waiting => trial.state = State::Stopped,
                // With its last epoch done it is about to finish.
                State::Running if trial.epoch() < trial.until => {
                    actions.push(Action::Stop { trial: trial.number });
                    trial.state = State::Stopping(Box::new(State::Stopped));
                }
                _ => {}
            }
        }
    }

    fn close(&mut self, actions: &mut Vec<Action>) {
        self.kept.is_over = true;
        // A budget that was not enough for a single trial is another thing than one that was used up.
        let is_budget = matches!(self.kept.ending, Some(End::Budget { .. }));
        let came_to_an_end = |trial: &Trial| matches!(trial.state, State::Done | State::Paused | State::Pruned);
        if let (true, Some(budget)) = (is_budget, self.settings.budget)
            && !self.kept.trials.iter().any(came_to_an_end)
        {
            let trial = self.dearest_epoch().map(|epoch| epoch * f64::from(self.ladders[0][0]));
            self.kept.ending = Some(End::BelowOneTrial { budget, trial });
        }
        if let Some(reason) = self.kept.ending.clone() {
            actions.push(Action::End { reason });
        }
    }

    pub(super) fn start(trial: &Trial) -> Action {
        let (point, workers, until) = (trial.point.clone(), trial.workers, trial.until);
        Action::Start { trial: trial.number, point, workers, until }
    }

    pub(super) fn resume(&self, trial: &Trial) -> Action {
        Action::Resume { trial: trial.number, workers: trial.workers, until: trial.until }
    }
}

/// Whether a sum is within the budget, up to what rounding adds.
fn fits(sum: f64, budget: f64) -> Option<()> {
    (sum <= budget * (1.0 + 1e-9)).then_some(())
}
