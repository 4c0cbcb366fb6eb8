//! Workers that do not wait for each other: does what [`Arrivals`] says, and tells it what happens.

use std::time::Instant;

use weft_core::sync::arrivals::{Action, Arrivals, Event, LoosePace};
use weft_core::sync::{OnLoss, Pace, Quorum, Who};

use super::{ATTEMPTS, Contribution, FreeDirector, Halt, Happened, News, Report, Team, WorkOrder, WorkerError};

/// The machine of a team whose workers do not wait for each other.
pub(super) struct Free {
    arrivals: Arrivals,
    pace: LoosePace,
    /// By worker: the number of its latest assignment, the stretch and the round that it is of, and when it began.
    tickets: Vec<Ticket>,
    /// Assignments so far.
    assigned: u64,
    /// By worker: what it handed in last.
    latest: Vec<Option<Box<Contribution>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ticket {
    number: u64,
    stretch: u64,
    clock: u64,
    began: Option<Instant>,
}

fn loose(pace: Pace) -> LoosePace {
    match pace {
        Pace::Staleness(rounds) => LoosePace::Staleness(rounds.get().into()),
        Pace::Overwrite => LoosePace::Overwrite,
        Pace::Quorum(Quorum { peers, max_age }) => {
            LoosePace::Quorum { quorum: peers.get(), max_age: max_age.map(|age| age.get().into()) }
        }
        Pace::OnArrival | Pace::Barrier => LoosePace::OnArrival,
    }
}

impl Free {
    pub fn new(workers: u32, pace: Pace, on_loss: OnLoss) -> (Self, Vec<Action>) {
        let pace = loose(pace);
        let (arrivals, starts) = Arrivals::new(workers, pace, on_loss, ATTEMPTS);
        let count = workers as usize;
        let (tickets, latest) = (vec![Ticket::default(); count], (0..count).map(|_| None).collect());
        (Self { arrivals, pace, tickets, assigned: 0, latest }, starts)
    }

    /// From now on there are so many workers.
    pub fn resize(&mut self, workers: u32) -> Vec<Action> {
        let count = workers as usize;
        self.tickets.resize(count, Ticket::default());
        self.latest.resize_with(count, || None);
        self.arrivals.resize(workers)
    }

    pub fn claim(&self, worker: u32) -> Option<Who> {
        self.arrivals.claim(worker)
    }

    pub fn awaited(&self) -> Vec<(u32, bool)> {
        self.arrivals.awaited()
    }

    /// The number of a worker's next assignment.
    fn next_ticket(&mut self, who: Who, stretch: u64, clock: u64) -> u64 {
        self.assigned += 1;
        let ticket = Ticket { number: self.assigned, stretch, clock, began: Some(Instant::now()) };
        if let Some(place) = self.tickets.get_mut(who.worker as usize) {
            *place = ticket;
        }
        ticket.number
    }

    /// Who has begun its round first, of those that are at it, and when.
    fn slowest(&self) -> Option<(u32, Ticket, Instant)> {
        let began = (0..).zip(&self.tickets).filter_map(|(worker, ticket)| Some((worker, *ticket, ticket.began?)));
        began.min_by_key(|(_, _, began)| *began)
    }
}

impl Team {
    /// Lets every worker do so many rounds, each as soon as it can.
    pub async fn stretch(&mut self, rounds: &[u64], director: &mut dyn FreeDirector) -> Result<(), Halt> {
        let pace = self.free.as_ref().map(|free| free.pace);
        self.free_stretch(rounds, pace, director).await
    }

    /// Has every worker do one thing, and waits for all of them.
    pub async fn collect(&mut self, director: &mut dyn FreeDirector) -> Result<(), Halt> {
        let rounds = vec![1; self.shape.workers as usize];
        self.free_stretch(&rounds, Some(LoosePace::OnArrival), director).await
    }

    async fn free_stretch(
        &mut self,
        rounds: &[u64],
        pace: Option<LoosePace>,
        director: &mut dyn FreeDirector,
    ) -> Result<(), Halt> {
        if let Some(silent) = self.silence.heard(Instant::now()) {
            (self.news)(News::Heard(silent));
        }
        let (Some(free), Some(pace)) = (&mut self.free, pace) else { return Ok(()) };
        free.latest.iter_mut().for_each(|latest| *latest = None);
        free.arrivals.set_pace(pace);
        let begin = free.arrivals.begin(rounds);
        let mut is_complete = self.obey_free(begin, director)?;
        while !is_complete {
            let slowest = self.free.as_ref().and_then(Free::slowest);
            let overdue = self.straggler.zip(slowest).map(|(straggler, (_, _, began))| began + straggler);
            is_complete = self.next_free(overdue, director).await?;
        }
        Ok(())
    }

    /// Waits for a message, an order or a deadline, and handles it. Whether the stretch is complete.
    pub(super) async fn next_free(
        &mut self,
        overdue: Option<Instant>,
        director: &mut dyn FreeDirector,
    ) -> Result<bool, Halt> {
        let event = match self.happen(overdue).await? {
            None => return Ok(false),
            Some(Happened::Said(report)) => match self.hear_free(*report)? {
                Some(event) => event,
                None => return Ok(false),
            },
            Some(Happened::Killed(worker)) => match self.who(worker) {
                Some(who) if self.note_lost(who, &WorkerError::Killed)? => Event::Lost(who),
                _ => return Ok(false),
            },
            Some(Happened::Overdue) => {
                let Some((worker, ticket, _)) = self.free.as_ref().and_then(Free::slowest) else { return Ok(false) };
                let Some(who) = self.who(worker) else { return Ok(false) };
                self.note_straggler();
                self.tell_lost(worker, self.last_error.clone());
                Event::Overdue { who, stretch: ticket.stretch, clock: ticket.clock }
            }
        };
        let Some(free) = &mut self.free else { return Ok(false) };
        let actions = free.arrivals.handle(event);
        self.obey_free(actions, director)
    }

    fn hear_free(&mut self, report: Report) -> Result<Option<Event>, Halt> {
        Ok(match report {
            Report::Ready { who, declaration, used } => {
                self.overhead.push((who.worker, used));
                if self.is_current(who) {
                    self.waiting_for = self.waiting_for.saturating_sub(1);
                    self.declaration = self.declaration.take().or(declaration);
                }
                Some(Event::Ready(who))
            }
            Report::Done { who, round, contribution, .. } => {
                if let Some(problem) = self.misfit(&contribution) {
                    let is_lost = self.note_lost(who, &WorkerError::Train(problem))?;
                    return Ok(is_lost.then_some(Event::Lost(who)));
                }
                let is_current = self.is_current(who);
                let Some(free) = &mut self.free else { return Ok(None) };
                let ticket = free.tickets.get_mut(who.worker as usize);
                let Some(ticket) = ticket.filter(|ticket| is_current && ticket.number == round) else {
                    return Ok(None);
                };
                ticket.began = None;
                let Ticket { stretch, clock, .. } = *ticket;
                if let Some(latest) = free.latest.get_mut(who.worker as usize) {
                    *latest = Some(contribution);
                }
                Some(Event::Done { who, stretch, clock })
            }
            Report::Lost { who, error } => self.note_lost(who, &error)?.then_some(Event::Lost(who)),
            Report::Progress { who, steps, loss, samples } => {
                let steps = self.epoch_steps.and(steps);
                (self.news)(News::Progress { worker: who.worker, steps, loss, samples });
                None
            }
            // Nobody merges here, and models come with all of their numbers.
            Report::Merged { .. } | Report::Missing { .. } | Report::ModelMissing { .. } | Report::Computes => None,
        })
    }

    /// Does what the machine says. Whether the stretch is complete.
    pub(super) fn obey_free(&mut self, actions: Vec<Action>, director: &mut dyn FreeDirector) -> Result<bool, Halt> {
        let mut is_complete = false;
        for action in actions {
            match action {
                Action::Start(who) => {
                    if let Some(ticket) = self.free.as_mut().and_then(|free| free.tickets.get_mut(who.worker as usize))
                    {
                        ticket.began = None;
                    }
                    self.start_worker(who);
                }
                Action::Assign { who, stretch, clock } => {
                    let mut assignment = director.assignment(who, clock)?;
                    let Some(free) = &mut self.free else { continue };
                    assignment.round = free.next_ticket(who, stretch, clock);
                    self.task = Some(assignment.task);
                    self.order(who, WorkOrder::Work { assignment: Box::new(assignment), generation: 0 });
                }
                Action::Apply { worker, staleness, .. } => {
                    let latest = self.free.as_mut().and_then(|free| free.latest.get_mut(worker as usize)?.take());
                    if let Some(contribution) = latest {
                        director.arrived(worker, contribution, staleness)?;
                    }
                }
                Action::Average { who, of, .. } => {
                    let Some(free) = &self.free else { continue };
                    let latest = |worker: u32| free.latest.get(worker as usize).and_then(Option::as_deref);
                    let of = of.iter().filter_map(|message| Some((latest(message.who.worker)?, message.age)));
                    let of: Vec<(&Contribution, u64)> = of.collect();
                    if let Some(own) = latest(who.worker) {
                        director.average(who, own, &of)?;
                    }
                }
                Action::Abandon(who) => self.handles[who.worker as usize] = None,
                Action::Complete { .. } => is_complete = true,
                Action::GiveUp { worker, .. } => return Err(self.give_up(worker)),
            }
        }
        Ok(is_complete)
    }
}
