//! Worlds in which messages are late, twice or out of order, workers die at any time, and what was put is lost.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::super::*;
use super::field::{Field, Job, samples};
use crate::sync::topology::{Topology, plan};

struct World {
    random: ChaCha12Rng,
    barrier: Barrier,
    on_loss: OnLoss,
    workers: u32,
    topologies: &'static [&'static str],
    plan: Option<Arc<MergePlan>>,
    takes_part: Vec<bool>,
    field: Field,
    jobs: Vec<Job>,
    /// What is on its way.
    mail: Vec<Event>,
    /// What each worker was told and has not answered, as far as has been heard.
    busy: BTreeMap<Who, Event>,
    /// All answers that were ever asked for, apart from what they say.
    asked: HashSet<Event>,
    dead: BTreeSet<Who>,
    /// The latest claim that was started, of every place that there ever was.
    claims: BTreeMap<u32, u64>,
    /// Who has been assigned its share of this round last.
    assigned: BTreeMap<u32, Who>,
    completed: u64,
    /// Bad things that may still happen.
    losses: u32,
    /// Whether anything was ever lost in the channel.
    has_lost_parts: bool,
    may_lose_parts: bool,
    has_given_up: bool,
    attempts: u32,
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

    /// Opens the next round, sometimes with other workers, for some of them, or without merges.
    fn begin(&mut self) {
        if self.chance(3) {
            self.workers = 1 + self.below(9) as u32;
            let actions = self.barrier.resize(self.workers);
            self.obey(actions);
        }
        let word = self.topologies[self.below(self.topologies.len())];
        let layers = [1, 2, 3, self.workers].into_iter().filter(|layer| *layer <= self.workers);
        let mut layers: Vec<String> = layers.map(|layer| layer.to_string()).collect();
        layers.dedup();
        let word = if word == "layers" { format!("tree:{}", layers.join(",")) } else { word.to_owned() };
        self.plan = Some(Arc::new(plan(&word.parse::<Topology>().unwrap(), self.workers).unwrap()));
        self.takes_part = vec![true; self.workers as usize];
        if self.chance(6) {
            let absent = self.below(self.workers as usize);
            self.takes_part[absent] = self.workers == 1;
        }
        println!("round {}: {} workers, {word}, {:?}", self.barrier.round() + 1, self.workers, self.takes_part);
        let oldest = self.barrier.round();
        self.field.channel.retain(|slot, _| slot.round >= oldest);
        self.assigned.clear();
        let takes_part = self.takes_part.clone();
        let actions = self.barrier.begin(|worker| takes_part[worker as usize], self.plan.clone());
        self.obey(actions);
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Some(job) = Job::of(&action, self.plan.as_ref()) {
                assert!(!self.dead.contains(&job.who()) || !matches!(job, Job::Start(_)), "nobody is started twice");
                assert_eq!(self.barrier.claim(job.who().worker), Some(job.who()), "only the latest claim has work");
                assert!(self.asked.insert(job.answer()), "an old answer could be taken for this one's: {job:?}");
                let busy = self.busy.insert(job.who(), job.answer());
                assert_eq!(busy, None, "{:?} does one thing at a time", job.who());
                self.jobs.push(job);
            }
            match action {
                Action::Start(who) => {
                    let before = self.claims.insert(who.worker, who.claim);
                    assert_eq!(before.unwrap_or_default() + 1, who.claim, "claims follow each other");
                }
                Action::Assign { who, .. } => {
                    self.assigned.insert(who.worker, who);
                }
                Action::Abandon(who) => {
                    self.busy.remove(&who);
                    self.die(who);
                }
                Action::Complete { round, contributions, results } => self.complete(round, &contributions, &results),
                Action::GiveUp { .. } => {
                    assert!(self.attempts < 1_000, "there are more attempts than losses");
                    self.has_given_up = true;
                    return;
                }
                Action::Merge { .. } => {}
            }
        }
    }

    fn complete(&mut self, round: u64, contributions: &[(u32, u64)], results: &[MergeResult]) {
        assert!(contributions.is_sorted_by(|one, next| one.0 < next.0), "each contribution counts once");
        assert!(contributions.iter().all(|&(worker, count)| count == samples(worker, round)));
        let takes_part = |worker: u32| self.takes_part[worker as usize];
        let of: Vec<u32> = contributions.iter().map(|(worker, _)| *worker).collect();
        assert!(of.iter().all(|&worker| takes_part(worker)) && !of.is_empty());
        if self.on_loss == OnLoss::Wait {
            let all: Vec<u32> = (0..self.workers).filter(|&worker| takes_part(worker)).collect();
            assert_eq!(of, all, "nobody is left out");
        }
        let plan = self.plan.clone().unwrap();
        if plan.merges.is_empty() {
            assert!(results.is_empty());
        } else if let Some(merge) = self.field.check(&plan, round, contributions, results) {
            assert!(self.has_lost_parts, "a result was not put");
            self.mail.push(Event::ResultMissing { round, merge });
            return;
        } else {
            for who in self.assigned.values().filter(|who| self.barrier.claim(who.worker) == Some(**who)) {
                let own = results.iter().find(|result| Some(result.merge) == plan.result(who.worker, result.shard));
                let takes = own.unwrap_or_else(|| panic!("{who:?} has nothing to take"));
                assert!(plan.results(0).len() == 1 || takes.who.worker == who.worker);
            }
        }
        assert_eq!(round, self.completed + 1, "every round is complete once, in order");
        self.completed = round;
    }

    /// The worker ends. What it was doing may still be done, or half of it, but nobody hears of it in time.
    fn die(&mut self, who: Who) {
        self.dead.insert(who);
        self.field.forget(who);
    }

    fn step(&mut self) {
        if self.is_bad_luck(12) {
            let round = self.barrier.round();
            self.tell(Event::Overdue { round });
        } else if self.is_bad_luck(8) {
            let worker = self.below(self.workers as usize) as u32;
            let who = self.barrier.claim(worker).unwrap();
            if !self.dead.contains(&who) {
                self.die(who);
                self.mail.push(Event::Lost(who));
            }
        } else if self.may_lose_parts && !self.field.channel.is_empty() && self.is_bad_luck(10) {
            self.has_lost_parts = true;
            let all = self.chance(4);
            let one = self.below(self.field.channel.len());
            let mut index = 0;
            self.field.channel.retain(|_, _| {
                index += 1;
                !all && index - 1 != one
            });
        } else if !self.jobs.is_empty() && (self.mail.is_empty() || self.chance(2)) {
            let index = self.below(self.jobs.len());
            let job = self.jobs.swap_remove(index);
            let is_dead = self.dead.contains(&job.who());
            if is_dead && self.chance(2) {
                return;
            }
            let told = self.field.execute(&job, !is_dead);
            let is_missing = matches!(told, Event::Missing { .. });
            assert!(!is_missing || self.has_lost_parts || is_dead, "not all was there: {told:?}");
            if self.chance(5) {
                self.mail.push(told.clone());
            }
            self.mail.push(told);
        } else {
            assert!(!self.mail.is_empty(), "nothing will ever happen again: {:?}", self.barrier);
            let index = self.below(self.mail.len());
            let event = self.mail.swap_remove(index);
            self.tell(event);
        }
    }

    fn tell(&mut self, event: Event) {
        let answer = match event.clone() {
            Event::Trained { who, round, generation, .. } => Event::Trained { who, round, generation, samples: 0 },
            Event::Missing { who, round, merge, generation, .. } => Event::Merged { who, round, merge, generation },
            other => other,
        };
        self.busy.retain(|who, asked| *asked != answer && answer != Event::Lost(*who));
        let actions = self.barrier.handle(event);
        self.obey(actions);
    }
}

fn run(seed: u64, topologies: &'static [&'static str], rounds: u64) -> World {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let workers = 1 + (random.next_u64() % 9) as u32;
    let on_loss = if random.next_u64().is_multiple_of(2) { OnLoss::Wait } else { OnLoss::Drop };
    let attempts = if random.next_u64().is_multiple_of(8) { 2 } else { 1_000 };
    let losses = (random.next_u64() % 60) as u32;
    let may_lose_parts = random.next_u64().is_multiple_of(2);
    println!("seed {seed}: {workers} workers, {on_loss:?}, {attempts} attempts, {losses} losses");
    let (barrier, starts) = Barrier::new(workers, on_loss, attempts);
    let mut world = World {
        random,
        barrier,
        on_loss,
        workers,
        topologies,
        plan: None,
        takes_part: Vec::new(),
        field: Field::default(),
        jobs: Vec::new(),
        mail: Vec::new(),
        busy: BTreeMap::new(),
        asked: HashSet::new(),
        dead: BTreeSet::new(),
        claims: BTreeMap::new(),
        assigned: BTreeMap::new(),
        completed: 0,
        losses,
        has_lost_parts: false,
        may_lose_parts,
        has_given_up: false,
        attempts,
    };
    world.obey(starts);
    for round in 1..=rounds {
        if world.has_given_up {
            break;
        }
        world.begin();
        let mut steps = 0;
        while world.completed < round && !world.has_given_up {
            world.step();
            steps += 1;
            assert!(steps < 20_000, "it does not get on");
        }
    }
    world
}

fn run_many(topologies: &'static [&'static str]) {
    let given_up = (0..3_000).filter(|&seed| run(seed, topologies, 8).has_given_up).count();
    assert!(given_up < 1_000, "most end well");
}

#[test]
fn thousands_of_bad_days_end_well_in_memory() {
    run_many(&["memory"]);
}

#[test]
fn thousands_of_bad_days_end_well_with_a_leader() {
    run_many(&["leader"]);
}

#[test]
fn thousands_of_bad_days_end_well_with_shards() {
    run_many(&["scatter", "scatter:2", "scatter:7"]);
}

#[test]
fn thousands_of_bad_days_end_well_in_a_tree() {
    run_many(&["tree", "tree:paper", "layers"]);
}

#[test]
fn thousands_of_bad_days_end_well_among_peers() {
    run_many(&["peers"]);
}

#[test]
fn thousands_of_bad_days_end_well_when_the_topology_changes() {
    run_many(&["memory", "leader", "scatter", "scatter:3", "tree", "layers", "peers"]);
}
