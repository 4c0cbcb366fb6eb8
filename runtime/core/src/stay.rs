//! Whether a job that is over stays. Pure.
//!
//! Deleting a job takes a while: first everything that it has in stores is deleted, which may fail, and then the job. Whoever
//! went on with it in between would lose what it has just stored. So from when a deletion begins, nobody goes on with the job
//! and nobody else deletes it; if the deletion fails, the job stays as it is.

/// What becomes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stay {
    #[default]
    Stays,
    /// It is being deleted.
    Leaves,
    /// It was deleted.
    Left,
}

impl Stay {
    /// Begins to delete a job. Whether it may be deleted: only one that is over, and by one at a time.
    pub fn leave(&mut self, is_over: bool) -> bool {
        let may_leave = *self == Self::Stays && is_over;
        if may_leave {
            *self = Self::Leaves;
        }
        may_leave
    }

    /// The deletion has failed.
    pub fn stay(&mut self) {
        if *self == Self::Leaves {
            *self = Self::Stays;
        }
    }

    /// It was deleted.
    pub fn left(&mut self) {
        *self = Self::Left;
    }

    /// Whether nobody may go on with it.
    pub fn is_leaving(self) -> bool {
        self != Self::Stays
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// How far one who deletes the job is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Deleter {
        Asks,
        /// It may, and what the job has in stores is still there.
        Begun,
        /// That is gone.
        Cleared,
        Over,
    }

    /// How far one who goes on with the job is: it looks, then finds out what the job needs, then decides.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Resumer {
        Asks,
        Looked,
        Over,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        stay: Stay,
        runs: bool,
        is_shown: bool,
        /// Whether it has something in stores.
        has_values: bool,
        deleters: [Deleter; 2],
        resumer: Resumer,
        /// Ends that are still to come: of a run of the job, and of its tenant.
        tenant_lives: bool,
    }

    impl World {
        fn check(&self) {
            assert!(!(self.runs && self.is_shown && self.stay.is_leaving()), "it runs while it is deleted: {self:?}");
            let at_it = self.deleters.iter().filter(|it| matches!(it, Deleter::Begun | Deleter::Cleared)).count();
            assert!(at_it <= 1, "two delete it: {self:?}");
            assert!(!self.runs || self.has_values, "what it has stored since it went on is gone: {self:?}");
        }

        /// All that may happen next.
        fn next(&self) -> Vec<Self> {
            let mut all = Vec::new();
            let mut then = |change: &dyn Fn(&mut Self)| {
                let mut next = self.clone();
                change(&mut next);
                all.push(next);
            };
            for index in 0..2 {
                match self.deleters[index] {
                    Deleter::Asks => then(&|next| {
                        let may = next.is_shown && next.stay.leave(!next.runs);
                        next.deleters[index] = if may { Deleter::Begun } else { Deleter::Over };
                    }),
                    Deleter::Begun => {
                        then(&|next| (next.has_values, next.deleters[index]) = (false, Deleter::Cleared));
                        // The store is away.
                        then(&|next| {
                            next.stay.stay();
                            next.deleters[index] = Deleter::Over;
                        });
                    }
                    Deleter::Cleared => {
                        then(&|next| {
                            match next.is_shown {
                                true => {
                                    next.is_shown = false;
                                    next.stay.left();
                                }
                                // It has gone with its tenant.
                                false => next.stay.stay(),
                            }
                            next.deleters[index] = Deleter::Over;
                        });
                        // Its record cannot be deleted.
                        then(&|next| {
                            next.stay.stay();
                            next.deleters[index] = Deleter::Over;
                        });
                    }
                    Deleter::Over => {}
                }
            }
            match self.resumer {
                Resumer::Asks => {
                    let may = !self.runs && self.is_shown;
                    then(&|next| next.resumer = if may { Resumer::Looked } else { Resumer::Over });
                }
                Resumer::Looked => then(&|next| {
                    let may = !next.runs && next.is_shown && next.tenant_lives && !next.stay.is_leaving();
                    if may {
                        (next.runs, next.has_values) = (true, true);
                    }
                    next.resumer = Resumer::Over;
                }),
                Resumer::Over => {}
            }
            if self.runs {
                then(&|next| next.runs = false);
            }
            if self.tenant_lives {
                then(&|next| (next.tenant_lives, next.is_shown, next.runs) = (false, false, false));
            }
            all
        }
    }

    #[test]
    fn in_every_order_of_events_a_job_is_deleted_once_and_never_under_whoever_goes_on_with_it() {
        for runs in [false, true] {
            let first = World {
                stay: Stay::Stays,
                runs,
                is_shown: true,
                has_values: true,
                deleters: [Deleter::Asks; 2],
                resumer: Resumer::Asks,
                tenant_lives: true,
            };
            let (mut seen, mut open, mut ends) = (HashSet::from([first.clone()]), vec![first], 0);
            while let Some(world) = open.pop() {
                world.check();
                let next = world.next();
                if next.is_empty() {
                    ends += 1;
                    assert!(world.stay != Stay::Leaves, "nobody deletes it, and nobody may: {world:?}");
                }
                open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
            }
            assert!(seen.len() > 100 && ends > 1, "{} states, {ends} ends", seen.len());
        }
    }

    #[test]
    fn a_job_that_stays_can_be_deleted_again() {
        let mut stay = Stay::default();
        assert!(!stay.leave(false), "it is not over");
        assert!(stay.leave(true) && stay.is_leaving() && !stay.leave(true));
        stay.stay();
        assert!(stay.leave(true));
        stay.left();
        stay.stay();
        assert!(stay.is_leaving() && !stay.leave(true), "it is gone");
    }
}
