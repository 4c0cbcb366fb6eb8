//! What a job does that follows a data set: it trains on a version, waits for the next, and trains on that. Pure.
//!
//! While it waits it has no workers, no lease and no thread: nothing but its record says that it waits. So what wakes it is
//! whoever changes something: a data set that has grown or is gone says so after the change can be seen, and a job that
//! begins to wait says so after its record does. Whoever hears of either looks at both ([`next`]), so an append that comes
//! between the end of a training and the beginning of the wait is seen by the look that follows the later of the two.
//!
//! Three may change what becomes of a job at the same time: its run, who stops it, and who looks. [`Phase`] decides who is
//! first: each of its changes is one change of the job's record.

use crate::spec::Follow;

#[cfg(test)]
mod tests;

/// Who has a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The queue, or a run.
    Trains,
    /// Nobody: it waits for its data set.
    Waits,
    /// Nobody any more.
    Over,
}

impl Phase {
    /// Its run has trained on all that there was. One that was told to stop meanwhile is over.
    pub fn caught_up(&mut self, is_told_to_stop: bool) {
        *self = if is_told_to_stop { Self::Over } else { Self::Waits };
    }

    /// There is something to train on. Whether the caller has to put it into the queue.
    pub fn wake(&mut self) -> bool {
        let waited = *self == Self::Waits;
        if waited {
            *self = Self::Trains;
        }
        waited
    }

    /// It is to end. Whether it has: otherwise whoever has it hears of the order.
    pub fn end(&mut self) -> bool {
        let waited = *self == Self::Waits;
        if waited {
            *self = Self::Over;
        }
        waited
    }
}

/// A version of a data set, and how many samples to train on it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version<V> {
    pub id: V,
    pub samples: u64,
}

/// What a job has come to that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<V> {
    /// What it was trained on last.
    pub trained: V,
    /// Versions that it has trained on after its first.
    pub followed: u64,
    /// Functions that share the samples of a step: each needs one.
    pub lanes: u64,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<V> {
    /// With what it waits for, for people.
    Wait(String),
    /// Train on this version, which has grown out of the other.
    Train { version: V, grown_from: Version<V> },
    /// It is done, with the reason.
    Done(String),
    /// What it followed is not there any more as it was.
    Failed(String),
}

/// What a job that waits does, given all versions of its data set, the oldest first; none if there is no such data set.
pub fn next<V: Copy + PartialEq>(
    follow: &Follow,
    waiting: &Waiting<V>,
    dataset: &str,
    versions: Option<&[Version<V>]>,
) -> Next<V> {
    let Some((versions, latest)) = versions.and_then(|versions| Some((versions, versions.last()?))) else {
        return Next::Done(format!("its data set `{dataset}` was deleted"));
    };
    let Some(trained) = versions.iter().find(|version| version.id == waiting.trained) else {
        return Next::Failed(format!(
            "`{dataset}` is another data set now: it has not grown out of the version that was trained on"
        ));
    };
    if follow.versions > 0 && waiting.followed >= follow.versions {
        return Next::Done(format!("all {} versions are followed", follow.versions));
    }
    let new = latest.samples.saturating_sub(trained.samples);
    let some = new + replayed(trained.samples, follow.replay);
    let wait = "waits for data";
    match () {
        () if latest.id == trained.id => Next::Wait(wait.to_owned()),
        () if new == 0 => Next::Wait(format!("{wait}: the latest version has no new samples to train on")),
        () if some < waiting.lanes => {
            Next::Wait(format!("{wait}: {some} samples are fewer than one for each of {} functions", waiting.lanes))
        }
        () => Next::Train { version: latest.id, grown_from: *trained },
    }
}

/// How many of so many samples are a share of them: rounded down, and exact for every part of them.
pub fn replayed(samples: u64, share: f64) -> u64 {
    // In millionths: a product of whole numbers is the same everywhere, and sums of parts are that of the whole.
    const WHOLE: f64 = 1e6;
    let millionths = (share.clamp(0.0, 1.0) * WHOLE).round() as u128;
    let part = u128::from(samples) * millionths / WHOLE as u128;
    u64::try_from(part).unwrap_or(samples)
}
