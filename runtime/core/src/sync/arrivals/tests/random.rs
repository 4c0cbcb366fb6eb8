//! Worlds in which messages are late, twice or out of order, and workers die at any time.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::super::*;

struct World {
    random: ChaCha12Rng,
    arrivals: Arrivals,
    pace: LoosePace,
    on_loss: OnLoss,
    rounds: Vec<u64>,
    /// What workers were told and have not done.
    jobs: Vec<Event>,
    /// What is on its way.
    mail: Vec<Event>,
    /// What each worker was told and has not answered, as far as has been heard.
    busy: BTreeMap<Who, Event>,
    /// All answers that were ever asked for.
    asked: HashSet<Event>,
    dead: BTreeSet<Who>,
    /// The latest claim that was started, of every place that there ever was.
    claims: BTreeMap<u32, u64>,
    /// Of this stretch: rounds done.
    clocks: Vec<u64>,
    /// Whether anybody was lost in this stretch.
    has_lost: bool,
    /// By worker: what it published last, and everybody's clock then.
    published: BTreeMap<u32, (Who, u64, Vec<u64>)>,
    /// The sum of all that was applied in this stretch.
    model: i64,
    /// How often the model was changed.
    version: u64,
    /// By worker: the version that it was given.
    given: BTreeMap<u32, u64>,
    is_complete: bool,
    has_given_up: bool,
    /// Bad things that may still happen.
    losses: u32,
    attempts: u32,
}

/// Distinct digits for every worker.
fn value(worker: u32, clock: u64) -> i64 {
    64_i64.pow(worker) * (1 + clock as i64)
}

impl World {
    fn chance(&mut self, of: u64) -> bool {
        self.random.next_u64().is_multiple_of(of)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.random.next_u64() % count as u64) as usize
    }

    fn is_bad_luck(&mut self, of: u64) -> bool {
        let is_bad = self.losses > 0 && self.chance(of);
        self.losses -= u32::from(is_bad);
        is_bad
    }

    /// Opens the next stretch, sometimes with other workers.
    fn begin(&mut self) {
        if self.chance(3) {
            let workers = 1 + self.below(9);
            let actions = self.arrivals.resize(workers as u32);
            self.rounds.resize(workers, 0);
            self.obey(actions);
        }
        let count = self.rounds.len();
        self.rounds = (0..count).map(|_| self.below(6) as u64).collect();
        (self.clocks, self.model, self.is_complete, self.has_lost) = (vec![0; count], 0, false, false);
        self.published.clear();
        println!("stretch {}: {:?} rounds", self.arrivals.stretch() + 1, self.rounds);
        let actions = self.arrivals.begin(&self.rounds.clone());
        self.obey(actions);
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            let job = match action.clone() {
                Action::Start(who) => Some((who, Event::Ready(who))),
                Action::Assign { who, stretch, clock } => Some((who, Event::Done { who, stretch, clock })),
                _ => None,
            };
            if let Some((who, job)) = job {
                assert_eq!(self.arrivals.claim(who.worker), Some(who), "only the latest claim has work");
                assert!(self.asked.insert(job.clone()), "an old answer could be taken for this one's: {job:?}");
                let busy = self.busy.insert(who, job.clone());
                assert_eq!(busy, None, "{who:?} does one thing at a time");
                self.jobs.push(job);
            }
            match action {
                Action::Start(who) => {
                    let before = self.claims.insert(who.worker, who.claim);
                    assert_eq!(before.unwrap_or_default() + 1, who.claim, "claims follow each other");
                }
                Action::Assign { who, clock, .. } => self.check_start(who.worker, clock),
                Action::Apply { worker, clock, staleness } => {
                    assert!(!matches!(self.pace, LoosePace::Quorum { .. }));
                    assert_eq!(staleness, self.version - self.given[&worker]);
                    self.version += 1;
                    self.model += value(worker, clock);
                    self.tick(worker, clock);
                }
                Action::Average { who, clock, of } => {
                    self.check_average(who, clock, &of);
                    self.tick(who.worker, clock);
                }
                Action::Abandon(who) => {
                    self.busy.remove(&who);
                    self.dead.insert(who);
                    self.has_lost = true;
                }
                Action::Complete { rounds, finished, .. } => self.complete(&rounds, &finished),
                Action::GiveUp { .. } => {
                    assert!(self.attempts < 1_000, "there are more attempts than losses");
                    self.has_given_up = true;
                    return;
                }
            }
        }
    }

    /// A round counts once, after the one before.
    fn tick(&mut self, worker: u32, clock: u64) {
        assert_eq!(self.clocks[worker as usize], clock, "worker {worker} counts twice, or not at all");
        self.clocks[worker as usize] += 1;
    }

    fn check_start(&mut self, worker: u32, clock: u64) {
        assert_eq!(self.clocks[worker as usize], clock);
        self.given.insert(worker, self.version);
        let LoosePace::Staleness(most) = self.pace else { return };
        // Whoever is left out holds nobody back, and comes back with the clock that it had.
        if self.on_loss == OnLoss::Drop && (self.has_lost || self.arrivals.stretch() > 1) {
            return;
        }
        for other in 0..self.rounds.len() {
            let holds = self.clocks[other] < self.rounds[other];
            assert!(!holds || self.clocks[other] + most >= clock, "{worker} is too far ahead of {other}");
        }
    }

    fn check_average(&self, who: Who, clock: u64, of: &[Message]) {
        let LoosePace::Quorum { max_age, .. } = self.pace else { panic!("there is no quorum at this pace") };
        assert!(
            of.is_sorted_by(|one, next| one.who.worker < next.who.worker),
            "in the order of the workers, once each"
        );
        assert!(of.iter().any(|message| message.who.worker == who.worker && message.clock == clock));
        for message in of {
            let (by, made_at, clocks) = &self.published[&message.who.worker];
            assert_eq!((message.who, message.clock), (*by, *made_at), "it is the latest");
            assert_eq!(message.age, clock - clocks[who.worker as usize]);
            assert!(max_age.is_none_or(|most| message.age <= most));
        }
    }

    fn complete(&mut self, rounds: &[(u32, u64)], finished: &[Who]) {
        let members: Vec<(u32, u64)> = (0..).zip(self.rounds.iter().copied()).filter(|(_, count)| *count > 0).collect();
        assert_eq!(rounds.len(), members.len());
        for (worker, count) in rounds {
            assert_eq!(*count, self.clocks[*worker as usize], "what was told is what happened");
        }
        if self.on_loss == OnLoss::Wait {
            assert_eq!(rounds, members, "nobody is left out");
        }
        assert!(members.is_empty() || !finished.is_empty(), "somebody has the model");
        for who in finished {
            assert_eq!(self.arrivals.claim(who.worker), Some(*who));
            assert_eq!(self.clocks[who.worker as usize], self.rounds[who.worker as usize]);
        }
        if !matches!(self.pace, LoosePace::Quorum { .. }) {
            let all = rounds.iter().flat_map(|&(worker, count)| (0..count).map(move |clock| value(worker, clock)));
            assert_eq!(self.model, all.sum::<i64>());
        }
        self.is_complete = true;
    }

    fn step(&mut self) {
        if self.is_bad_luck(12) {
            let worker = self.below(self.rounds.len());
            let who = self.arrivals.claim(worker as u32).unwrap();
            let (stretch, clock) = (self.arrivals.stretch(), self.clocks[worker]);
            self.tell(Event::Overdue { who, stretch, clock });
        } else if self.is_bad_luck(8) {
            let worker = self.below(self.rounds.len()) as u32;
            let who = self.arrivals.claim(worker).unwrap();
            if self.dead.insert(who) {
                self.mail.push(Event::Lost(who));
            }
        } else if !self.jobs.is_empty() && (self.mail.is_empty() || self.chance(2)) {
            let index = self.below(self.jobs.len());
            let told = self.jobs.swap_remove(index);
            let (Event::Ready(who) | Event::Done { who, .. }) = told else { return };
            // Whoever has died may have said it before, or not.
            if self.dead.contains(&who) && self.chance(2) {
                return;
            }
            if self.chance(5) {
                self.mail.push(told.clone());
            }
            self.mail.push(told);
        } else {
            assert!(!self.mail.is_empty(), "nothing will ever happen again: {:?}", self.arrivals);
            let index = self.below(self.mail.len());
            let event = self.mail.swap_remove(index);
            self.tell(event);
        }
    }

    fn tell(&mut self, event: Event) {
        match &event {
            Event::Done { who, clock, .. } if self.busy.get(who) == Some(&event) => {
                self.published.insert(who.worker, (*who, *clock, self.clocks.clone()));
            }
            Event::Lost(_) => self.has_lost = true,
            _ => {}
        }
        self.busy.retain(|who, asked| *asked != event && event != Event::Lost(*who));
        let actions = self.arrivals.handle(event);
        self.obey(actions);
    }
}

/// Returns whether the job was given up.
fn run(seed: u64, paces: &[LoosePace]) -> bool {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let workers = 1 + (random.next_u64() % 9) as u32;
    let pace = paces[(random.next_u64() % paces.len() as u64) as usize];
    let on_loss = if random.next_u64().is_multiple_of(2) { OnLoss::Wait } else { OnLoss::Drop };
    let attempts = if random.next_u64().is_multiple_of(8) { 2 } else { 1_000 };
    let losses = (random.next_u64() % 60) as u32;
    println!("seed {seed}: {workers} workers, {pace:?}, {on_loss:?}, {attempts} attempts, {losses} losses");
    let (arrivals, starts) = Arrivals::new(workers, pace, on_loss, attempts);
    let mut world = World {
        random,
        arrivals,
        pace,
        on_loss,
        rounds: vec![0; workers as usize],
        jobs: Vec::new(),
        mail: Vec::new(),
        busy: BTreeMap::new(),
        asked: HashSet::new(),
        dead: BTreeSet::new(),
        claims: BTreeMap::new(),
        clocks: Vec::new(),
        has_lost: false,
        published: BTreeMap::new(),
        model: 0,
        version: 0,
        given: BTreeMap::new(),
        is_complete: false,
        has_given_up: false,
        losses,
        attempts,
    };
    world.obey(starts);
    for _ in 0..6 {
        if world.has_given_up {
            break;
        }
        world.begin();
        let mut steps = 0;
        while !world.is_complete && !world.has_given_up {
            world.step();
            steps += 1;
            assert!(steps < 20_000, "it does not get on");
        }
    }
    world.has_given_up
}

fn run_many(paces: &[LoosePace]) {
    let given_up = (0..4_000).filter(|&seed| run(seed, paces)).count();
    assert!(given_up < 1_000, "most end well");
}

#[test]
fn thousands_of_bad_days_end_well_with_bounded_staleness() {
    run_many(&[LoosePace::Staleness(0), LoosePace::Staleness(1), LoosePace::Staleness(3)]);
}

#[test]
fn thousands_of_bad_days_end_well_on_arrival_and_when_overwritten() {
    run_many(&[LoosePace::OnArrival, LoosePace::Overwrite]);
}

#[test]
fn thousands_of_bad_days_end_well_with_a_quorum() {
    let quorum = |quorum, max_age| LoosePace::Quorum { quorum, max_age };
    run_many(&[quorum(1, None), quorum(3, None), quorum(2, Some(0)), quorum(4, Some(1)), quorum(9, Some(2))]);
}
