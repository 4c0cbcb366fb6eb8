use std::collections::HashSet;

use super::*;

const FOLLOW: Follow = Follow { replay: 0.5, epochs: 1, versions: 0, idle_ms: 0 };

fn versions(samples: &[u64]) -> Vec<Version<usize>> {
    samples.iter().enumerate().map(|(id, &samples)| Version { id, samples }).collect()
}

fn after(follow: &Follow, trained: usize, lanes: u64, samples: &[u64]) -> Next<usize> {
    let waiting = Waiting { trained, followed: trained as u64, lanes };
    next(follow, &waiting, "digits", Some(&versions(samples)))
}

#[test]
fn the_latest_version_is_trained_on_whatever_came_before_it() {
    assert!(matches!(after(&FOLLOW, 0, 1, &[10]), Next::Wait(_)));
    let grown_from = Version { id: 0, samples: 10 };
    assert_eq!(after(&FOLLOW, 0, 1, &[10, 12, 15]), Next::Train { version: 2, grown_from });
}

#[test]
fn too_few_samples_are_waited_for() {
    assert!(matches!(after(&FOLLOW, 0, 8, &[10, 12]), Next::Wait(reason) if reason.contains("7 samples")));
    assert!(matches!(after(&FOLLOW, 0, 8, &[10, 13]), Next::Train { version: 1, .. }));
    assert!(matches!(after(&FOLLOW, 0, 1, &[10, 10]), Next::Wait(reason) if reason.contains("no new samples")));
}

#[test]
fn a_data_set_that_is_gone_or_another_one_ends_it() {
    let waiting = Waiting { trained: 7, followed: 0, lanes: 1 };
    assert!(matches!(next(&FOLLOW, &waiting, "digits", None), Next::Done(reason) if reason.contains("deleted")));
    let other = next(&FOLLOW, &waiting, "digits", Some(&versions(&[1, 2])));
    assert!(matches!(other, Next::Failed(reason) if reason.contains("another data set")));
}

#[test]
fn it_is_done_after_as_many_versions_as_were_asked_for() {
    let two = Follow { versions: 2, ..FOLLOW };
    assert!(matches!(after(&two, 1, 1, &[1, 2, 3]), Next::Train { version: 2, .. }));
    assert!(matches!(after(&two, 2, 1, &[1, 2, 3]), Next::Done(_)));
}

#[test]
fn a_share_of_parts_adds_up_to_the_share_of_the_whole() {
    for share in [0.0, 0.1, 0.2, 1.0 / 3.0, 0.999, 1.0] {
        let parts: u64 = (0..100).map(|part| replayed(part * 7 + 7, share) - replayed(part * 7, share)).sum();
        assert_eq!(parts, replayed(700, share));
    }
    assert_eq!((replayed(10, 0.2), replayed(10, 1.0), replayed(u64::MAX, 1.0)), (2, 10, u64::MAX));
}

/// Everything that can happen around one job, step by step, in every order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// What is on disk: the job's record, and the data set (its versions by number, or none once it was deleted).
    phase: Phase,
    trained: usize,
    latest: Option<usize>,
    /// What is in memory: the order to stop, the queue, whether a run is under way, and whether a look is due.
    told_to_stop: bool,
    queued: bool,
    runs: bool,
    look_is_due: bool,
    /// How far each who does something is.
    appends_left: u8,
    /// A change of the data set that nobody was told of yet.
    untold: bool,
    may_delete: bool,
    look: Look,
    stop: Stop,
    kills_left: u8,
    /// Whether the wait was recorded and nobody was told yet.
    wait_untold: bool,
    trainings: u8,
    /// Whether a training began after the stop was answered.
    trained_after_stop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Look {
    Idle,
    /// It has read this of the data set.
    Read(Option<usize>),
    /// It has recorded that the job trains, and is about to queue it.
    Queues,
    /// It is queued; was it told to stop meanwhile?
    Checks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stop {
    Not,
    /// It was not in the queue, and is now told.
    Tells,
    /// Told; the queue is looked at again.
    LooksAgain,
    /// Not there either; perhaps it waits.
    Ends,
    Answered,
}

impl World {
    fn start() -> Self {
        Self {
            phase: Phase::Trains,
            trained: 0,
            latest: Some(0),
            told_to_stop: false,
            queued: false,
            runs: true,
            look_is_due: false,
            appends_left: 2,
            untold: false,
            may_delete: true,
            look: Look::Idle,
            stop: Stop::Not,
            kills_left: 1,
            wait_untold: false,
            trainings: 0,
            trained_after_stop: false,
        }
    }

    fn decision(&self, read: Option<usize>) -> Next<usize> {
        let known: Option<Vec<u64>> = read.map(|latest| (0..=latest).map(|version| 10 + version as u64).collect());
        let waiting = Waiting { trained: self.trained, followed: self.trained as u64, lanes: 1 };
        next(&FOLLOW, &waiting, "digits", known.map(|samples| versions(&samples)).as_deref())
    }

    /// Takes it from the queue, and ends it, if it is there.
    fn leaves_queue(&mut self) -> bool {
        let was_there = std::mem::take(&mut self.queued);
        if was_there {
            self.phase = Phase::Over;
        }
        was_there
    }

    /// Every world that one more step leads to.
    fn steps(&self) -> Vec<Self> {
        let mut after = Vec::new();
        let mut step = |is_possible: bool, change: &dyn Fn(&mut Self)| {
            if is_possible {
                let mut world = self.clone();
                change(&mut world);
                after.push(world);
            }
        };
        // Somebody appends, or deletes the data set: first it can be seen, then it is told.
        step(self.appends_left > 0 && self.latest.is_some() && !self.untold, &|world| {
            world.appends_left -= 1;
            world.latest = world.latest.map(|latest| latest + 1);
            world.untold = true;
        });
        step(self.may_delete && self.latest.is_some() && !self.untold, &|world| {
            (world.may_delete, world.latest, world.untold) = (false, None, true);
        });
        step(self.untold, &|world| (world.untold, world.look_is_due) = (false, true));
        // The run comes to its end, records that, and tells.
        step(self.runs, &|world| {
            world.runs = false;
            let told = world.told_to_stop;
            world.phase.caught_up(told);
            world.wait_untold = true;
        });
        step(self.wait_untold, &|world| (world.wait_untold, world.look_is_due) = (false, true));
        // The queue starts what is in it.
        step(self.queued && !self.runs, &|world| {
            (world.queued, world.runs) = (false, true);
            world.trained_after_stop |= world.stop == Stop::Answered && !world.told_to_stop;
        });
        // One looks.
        step(self.look_is_due && self.look == Look::Idle, &|world| {
            (world.look_is_due, world.look) = (false, Look::Read(world.latest));
        });
        if let Look::Read(read) = self.look {
            step(true, &|world| {
                world.look = Look::Idle;
                if world.phase != Phase::Waits {
                    return;
                }
                match world.decision(read) {
                    Next::Wait(_) => {}
                    Next::Train { version, .. } => {
                        if world.phase.wake() {
                            world.trained = version;
                            world.trainings += 1;
                            world.look = Look::Queues;
                        }
                    }
                    Next::Done(_) | Next::Failed(_) => drop(world.phase.end()),
                }
            });
        }
        step(self.look == Look::Queues, &|world| (world.queued, world.look) = (true, Look::Checks));
        step(self.look == Look::Checks, &|world| {
            world.look = Look::Idle;
            if world.told_to_stop {
                world.leaves_queue();
            }
        });
        // Somebody stops it.
        step(self.stop == Stop::Not && self.phase != Phase::Over, &|world| {
            world.stop = if world.leaves_queue() { Stop::Answered } else { Stop::Tells };
        });
        step(self.stop == Stop::Tells, &|world| (world.told_to_stop, world.stop) = (true, Stop::LooksAgain));
        step(self.stop == Stop::LooksAgain, &|world| {
            world.stop = if world.leaves_queue() { Stop::Answered } else { Stop::Ends };
        });
        step(self.stop == Stop::Ends, &|world| {
            world.phase.end();
            world.stop = Stop::Answered;
        });
        // The node is killed and starts again: what was in memory is gone, and an order that was not written with it.
        step(self.kills_left > 0 && self.stop == Stop::Not, &|world| {
            world.kills_left -= 1;
            (world.queued, world.runs) = (world.phase == Phase::Trains, false);
            (world.look, world.look_is_due) = (Look::Idle, true);
            (world.untold, world.wait_untold) = (false, false);
        });
        after
    }
}

#[test]
fn no_order_of_events_loses_a_version_or_a_stop() {
    let (mut seen, mut open) = (HashSet::new(), vec![World::start()]);
    let mut ends = 0;
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        assert!(!(world.runs && world.queued), "it runs and is queued: {world:?}");
        assert!(!(world.runs || world.queued) || world.phase == Phase::Trains, "{world:?}");
        assert!(world.trainings <= 2, "a version was trained on twice: {world:?}");
        assert!(!world.trained_after_stop, "a training began after the stop was answered: {world:?}");
        let next = world.steps();
        // What else could happen by itself is over; whoever may still append or stop does not count.
        let is_at_rest = next.iter().all(|after| {
            after.appends_left < world.appends_left
                || after.stop != world.stop
                || after.kills_left < world.kills_left
                || after.may_delete != world.may_delete
        });
        if is_at_rest && !matches!(world.stop, Stop::Tells | Stop::LooksAgain | Stop::Ends) {
            ends += 1;
            match world.phase {
                Phase::Trains => panic!("nobody has it: {world:?}"),
                Phase::Waits => {
                    assert_eq!(Some(world.trained), world.latest, "it waits beside data: {world:?}");
                    assert_ne!(world.stop, Stop::Answered, "it waits although it was stopped: {world:?}");
                }
                Phase::Over => {}
            }
        }
        open.extend(next);
    }
    assert!(seen.len() > 1_000 && ends > 10, "{} worlds, {ends} ends", seen.len());
}
