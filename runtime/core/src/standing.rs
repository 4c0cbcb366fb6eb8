//! What a standing order does: a job for what is new in a data set, one at a time. Pure.
//!
//! Versions that come while its job trains are not lost, and do not pile up either: when that job is over, one job starts
//! for the latest. So whoever appends a thousand times has two jobs to wait for, not a thousand.

/// What is there of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataSet<V> {
    /// It was deleted, or another one has its name.
    Gone,
    Latest(V),
}

/// What to do for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next<V> {
    Nothing,
    /// Start a job for this version.
    Start(V),
    /// There is nothing any more that it was given for.
    Forget,
}

/// What an order does next: `seen` is the version that it has started a job for, or that was there when it was given;
/// `trains`, whether its job is not over.
pub fn next<V: Copy + PartialEq>(seen: V, trains: bool, dataset: DataSet<V>) -> Next<V> {
    match dataset {
        DataSet::Gone => Next::Forget,
        DataSet::Latest(latest) if latest != seen && !trains => Next::Start(latest),
        DataSet::Latest(_) => Next::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A node with one order, step by step.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        dataset: DataSet<u8>,
        /// On disk: the order and its jobs, by the version of each; the last may train.
        seen: Option<u8>,
        jobs: Vec<u8>,
        trains: bool,
        /// In memory: whether a look is due, and what a look has decided.
        due: bool,
        decided: Option<Next<u8>>,
        /// A job was started, which the order does not know yet.
        unknown: bool,
        appends_left: u8,
        kills_left: u8,
        may_delete: bool,
    }

    impl World {
        fn steps(&self) -> Vec<Self> {
            let mut after = Vec::new();
            let mut step = |is_possible: bool, change: &dyn Fn(&mut Self)| {
                if is_possible {
                    let mut world = self.clone();
                    change(&mut world);
                    after.push(world);
                }
            };
            if let DataSet::Latest(latest) = self.dataset {
                step(self.appends_left > 0, &|world| {
                    (world.appends_left, world.dataset) = (world.appends_left - 1, DataSet::Latest(latest + 1));
                    world.due = true;
                });
                step(self.may_delete, &|world| {
                    (world.may_delete, world.dataset, world.due) = (false, DataSet::Gone, true);
                });
            }
            step(self.trains, &|world| (world.trains, world.due) = (false, true));
            let is_idle = self.decided.is_none() && !self.unknown;
            step(self.due && is_idle && self.seen.is_some(), &|world| {
                world.due = false;
                // A job of the order that trained on a version counts as having seen it, whoever knows of it.
                let last = world.jobs.last().copied();
                let seen = world.seen.max(last).unwrap_or(0);
                world.decided = Some(next(seen, world.trains, world.dataset)).filter(|next| *next != Next::Nothing);
            });
            match self.decided {
                Some(Next::Start(version)) => step(true, &|world| {
                    world.decided = None;
                    world.jobs.push(version);
                    (world.trains, world.unknown) = (true, true);
                }),
                Some(Next::Forget) => step(true, &|world| (world.decided, world.seen) = (None, None)),
                _ => {}
            }
            step(self.unknown, &|world| {
                world.unknown = false;
                world.seen = world.seen.and(world.jobs.last().copied());
            });
            step(self.kills_left > 0, &|world| {
                world.kills_left -= 1;
                (world.decided, world.unknown, world.due) = (None, false, true);
            });
            after
        }
    }

    #[test]
    fn no_order_of_events_misses_a_version_or_trains_one_twice() {
        let start = World {
            dataset: DataSet::Latest(0),
            seen: Some(0),
            jobs: Vec::new(),
            trains: false,
            due: true,
            decided: None,
            unknown: false,
            appends_left: 3,
            kills_left: 2,
            may_delete: true,
        };
        let (mut seen, mut open, mut ends) = (HashSet::new(), vec![start], 0);
        while let Some(world) = open.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            let rises = world.jobs.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(rises, "a version was trained on twice: {world:?}");
            let next = world.steps();
            let others = |after: &World| {
                (after.appends_left, after.kills_left, after.may_delete)
                    != (world.appends_left, world.kills_left, world.may_delete)
            };
            if next.iter().all(others) {
                ends += 1;
                match world.dataset {
                    DataSet::Latest(latest) => {
                        assert_eq!(world.jobs.last().copied().unwrap_or(0), latest, "a version was missed: {world:?}");
                    }
                    DataSet::Gone => assert_eq!(world.seen, None, "the order stays: {world:?}"),
                }
            }
            open.extend(next);
        }
        assert!(seen.len() > 100 && ends > 3, "{} worlds, {ends} ends", seen.len());
    }

    #[test]
    fn versions_that_come_while_a_job_trains_become_one_job() {
        assert_eq!(next(1, true, DataSet::Latest(5)), Next::Nothing);
        assert_eq!(next(1, false, DataSet::Latest(5)), Next::Start(5));
        assert_eq!(next(5, false, DataSet::Latest(5)), Next::Nothing);
    }
}
