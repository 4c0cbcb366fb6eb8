//! All orders, up to a depth, of what can happen to a study whose trials are jobs: each job goes on, ends, is stopped or
//! deleted by hand; the node dies; the study is stopped and resumed.

use std::collections::{BTreeMap, HashSet};

use super::*;
use crate::tune::prune::Pruner;
use crate::tune::sampler::SamplerKind;
use crate::tune::space::Space;
use crate::tune::study::{Direction, End, Settings, Study, Workers};

const EPOCHS: u32 = 4;

fn settings(parallel: u32) -> Settings {
    Settings {
        space: Space::parse(&["x=0..1"]).unwrap(),
        sampler: SamplerKind::Random,
        pruner: Pruner::Asha(2),
        goal: "loss".into(),
        direction: Direction::Minimise,
        target: None,
        trials: 3,
        parallel,
        epochs: EPOCHS,
        least_epochs: 1,
        workers: Workers::Fixed(1),
        max_workers: None,
        budget: None,
        deadline: None,
        seed: 1,
        enqueued: Vec::new(),
    }
}

/// A job, as a node keeps it.
#[derive(Clone, Debug, PartialEq)]
struct Job {
    phase: Phase,
    epochs: u32,
    until: u32,
}

#[derive(Clone)]
struct World {
    study: Study,
    /// What the study was told, on disk.
    kept: Vec<Event>,
    jobs: BTreeMap<u32, Job>,
    is_stopped: bool,
    /// Whether anything has happened that may change what is decided.
    is_disturbed: bool,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
enum Happens {
    /// The driver does its next step for a trial.
    Driven(u32),
    Trains(u32),
    NodeDies,
    StudyStops,
    StudyResumes,
    JobStoppedByHand(u32),
    JobDeletedByHand(u32),
    JobFails(u32),
}

fn value(trial: u32, epoch: u32) -> f64 {
    f64::from((trial * 7 + 3) % 5) + 1.0 / f64::from(epoch)
}

impl World {
    fn new(parallel: u32) -> Self {
        let mut study = Study::new(settings(parallel)).unwrap();
        study.tell(Event::Looked).unwrap();
        let kept = vec![Event::Looked];
        Self { study, kept, jobs: BTreeMap::new(), is_stopped: false, is_disturbed: false }
    }

    fn step(&self, number: u32) -> Step {
        let seen = self.jobs.get(&number).map(|job| {
            let epoch = |epoch| EpochSeen { epoch, value: ValueSeen::Value(value(number, epoch)) };
            JobSeen {
                phase: job.phase.clone(),
                epochs: (1..=job.epochs).map(epoch).collect(),
                cost: f64::from(job.epochs),
            }
        });
        step(&self.study.trials()[number as usize], seen.as_ref(), self.is_stopped)
    }

    fn possible(&self) -> Vec<Happens> {
        let mut possible = vec![Happens::NodeDies];
        possible.push(if self.is_stopped { Happens::StudyResumes } else { Happens::StudyStops });
        for trial in self.study.trials() {
            let number = trial.number;
            if self.step(number) != Step::Wait {
                possible.push(Happens::Driven(number));
            }
            match self.jobs.get(&number) {
                Some(Job { phase: Phase::Alive, .. }) => possible.extend([
                    Happens::Trains(number),
                    Happens::JobStoppedByHand(number),
                    Happens::JobFails(number),
                ]),
                Some(_) => possible.push(Happens::JobDeletedByHand(number)),
                None => {}
            }
        }
        possible
    }

    fn happens(&mut self, what: &Happens) {
        match *what {
            Happens::Driven(number) => self.drive(number),
            Happens::Trains(number) => {
                let job = self.jobs.get_mut(&number).unwrap();
                if job.epochs < job.until {
                    job.epochs += 1;
                }
                // An epoch is kept, and then, in a later moment, the end.
                else if job.epochs == EPOCHS {
                    job.phase = Phase::Done;
                } else {
                    job.phase = Phase::Rested;
                }
            }
            Happens::NodeDies => {
                // Everything in memory is gone; jobs that were alive go on by themselves.
                self.study = Study::replay(self.study.settings().clone(), &self.kept).unwrap();
            }
            Happens::StudyStops => self.is_stopped = true,
            Happens::StudyResumes => self.is_stopped = false,
            Happens::JobStoppedByHand(number) => {
                self.jobs.get_mut(&number).unwrap().phase = Phase::Stopped;
                self.is_disturbed = true;
            }
            Happens::JobFails(number) => {
                self.jobs.get_mut(&number).unwrap().phase = Phase::Failed("lost".to_owned());
                self.is_disturbed = true;
            }
            Happens::JobDeletedByHand(number) => {
                self.jobs.remove(&number);
                self.is_disturbed = true;
            }
        }
    }

    fn drive(&mut self, number: u32) {
        match self.step(number) {
            Step::Wait => {}
            Step::Tell(event) => {
                self.kept.push(event.clone());
                self.study.tell(event).unwrap();
            }
            Step::Submit { until } => {
                let before = self.jobs.insert(number, Job { phase: Phase::Alive, epochs: 0, until });
                assert_eq!(before, None, "trial {number} has a job already");
            }
            Step::Resume { until } => {
                let job = self.jobs.get_mut(&number).unwrap();
                assert!(matches!(job.phase, Phase::Held | Phase::Rested), "{job:?}");
                (job.phase, job.until) = (Phase::Alive, until);
            }
            Step::Stop | Step::Hold => {
                let phase = if self.step(number) == Step::Hold { Phase::Held } else { Phase::Stopped };
                let job = self.jobs.get_mut(&number).unwrap();
                assert_eq!(job.phase, Phase::Alive);
                job.phase = phase;
            }
        }
    }

    /// Lets everything go on without disturbance until nothing more happens.
    fn calm(mut self) -> Self {
        self.is_stopped = false;
        for _ in 0..1_000 {
            let next = self.possible().into_iter().find(|what| matches!(what, Happens::Driven(_) | Happens::Trains(_)));
            match next {
                Some(what) => self.happens(&what),
                None => return self,
            }
        }
        panic!("it never comes to rest: {:?}, {:?}", self.study.trials(), self.jobs);
    }

    fn fingerprint(&self) -> String {
        let trials = serde_json::to_string(self.study.trials()).unwrap();
        format!("{trials} {:?} {} {:?}", self.jobs, self.is_stopped, self.study.end_reason())
    }
}

/// Every state that so many events lead to, and from each of them the way to the end without disturbance.
fn explore(parallel: u32, depth: u32) -> usize {
    let undisturbed = World::new(parallel).calm();
    assert!(matches!(undisturbed.study.end_reason(), Some(End::Complete { .. })));
    let mut known = HashSet::new();
    let mut open = vec![World::new(parallel)];
    for _ in 0..depth {
        let mut next = Vec::new();
        for world in open {
            for what in world.possible() {
                let mut after = world.clone();
                after.happens(&what);
                if !known.insert((after.fingerprint(), after.is_disturbed)) {
                    continue;
                }
                let end = after.clone().calm();
                assert!(end.study.end_reason().is_some(), "after {what:?}: {:?} {:?}", end.study.trials(), end.jobs);
                assert!(end.jobs.values().all(|job| job.phase != Phase::Alive), "{:?}", end.jobs);
                // With one trial at a time everything comes in one order, whenever the node dies or the study is stopped.
                if parallel == 1 && !after.is_disturbed {
                    assert_eq!(end.study.trials(), undisturbed.study.trials(), "after {what:?}");
                }
                next.push(after);
            }
        }
        open = next;
    }
    known.len()
}

#[test]
fn one_trial_at_a_time_decides_the_same_whatever_happens_to_the_node() {
    let states = explore(1, 14);
    assert!(states > 1_000, "{states} states");
}

#[test]
fn no_order_of_what_happens_to_jobs_loses_a_trial() {
    let states = explore(2, 10);
    assert!(states > 3_000, "{states} states");
}

#[test]
fn costs_are_told_once_with_the_epochs_that_they_are_of() {
    let mut world = World::new(1);
    world.drive(0);
    let job = JobSeen {
        phase: Phase::Alive,
        epochs: [1, 2].map(|epoch| EpochSeen { epoch, value: ValueSeen::Value(1.0) }).to_vec(),
        cost: 3.0,
    };
    for (epoch, cost) in [(1, 1.5), (2, 1.5)] {
        let Step::Tell(event) = step(&world.study.trials()[0], Some(&job), false) else { panic!("nothing is told") };
        assert_eq!(event, Event::Trained { trial: 0, epoch, value: 1.0, cost });
        world.study.tell(event).unwrap();
    }
    assert_eq!(world.study.spent(), 3.0);
    assert_eq!(step(&world.study.trials()[0], Some(&job), false), Step::Wait);
}

#[test]
fn a_goal_that_is_not_reported_fails_the_trial_and_stops_its_job() {
    let mut world = World::new(1);
    let missing = EpochSeen { epoch: 1, value: ValueSeen::Missing("there was no `f1`".to_owned()) };
    let job = JobSeen { phase: Phase::Alive, epochs: vec![missing], cost: 1.0 };
    let Step::Tell(event) = step(&world.study.trials()[0], Some(&job), false) else { panic!("nothing is told") };
    world.study.tell(event).unwrap();
    let trial = &world.study.trials()[0];
    assert_eq!(trial.state, State::Failed("after epoch 1 there was no `f1`".to_owned()));
    assert_eq!(step(trial, Some(&job), false), Step::Stop);
}

#[test]
fn a_trial_that_nobody_can_validate_fails_and_is_not_resumed_for_ever() {
    let world = World::new(1);
    let unseen = EpochSeen { epoch: 1, value: ValueSeen::None };
    let job = JobSeen { phase: Phase::Rested, epochs: vec![unseen], cost: 0.0 };
    let next = step(&world.study.trials()[0], Some(&job), false);
    assert!(matches!(next, Step::Tell(Event::Failed { why, .. }) if why.contains("nothing was validated")));
}
