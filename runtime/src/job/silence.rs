//! A round that stands still says so. Pure.
//!
//! A worker may wait for room on a device, for a store that is slow, or hang in its function; nothing ends it unless the
//! job has a limit for that. So whoever follows a job is told when its workers have been silent for long, again after
//! twice as long each time, and once more when they are heard again.

use std::time::{Duration, Instant};

/// How long workers may be silent before anybody is told.
pub const FIRST_TOLD: Duration = Duration::from_secs(30);

/// Since when nothing was heard, and how often that was told.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    since: Instant,
    told: u32,
}

impl Silence {
    pub fn new(now: Instant) -> Self {
        Self { since: now, told: 0 }
    }

    /// When it is to be told next.
    pub fn tell_at(&self) -> Instant {
        self.since + FIRST_TOLD * (1 << self.told.min(16))
    }

    /// It is told now: how long it has lasted.
    pub fn tell(&mut self, now: Instant) -> Duration {
        self.told += 1;
        now.saturating_duration_since(self.since)
    }

    /// A worker is heard. How long it was silent before, if that was told.
    pub fn heard(&mut self, now: Instant) -> Option<Duration> {
        let before = std::mem::replace(self, Self::new(now));
        (before.told > 0).then(|| now.saturating_duration_since(before.since))
    }
}

/// Whom a round waits for, and for how long, in words. A worker comes with whether it is still being started.
pub fn describe(awaited: &[(u32, bool)], silent: Duration) -> String {
    const NAMED: usize = 4;
    let name = |(worker, is_starting): &(u32, bool)| match is_starting {
        true => format!("worker {worker}, which is being started"),
        false => format!("worker {worker}"),
    };
    let mut names: Vec<String> = awaited.iter().take(NAMED).map(name).collect();
    if awaited.len() > NAMED {
        names.push(format!("{} more", awaited.len() - NAMED));
    }
    format!("nothing was heard for {} s from {}", silent.as_secs(), names.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_after_a_while_then_less_and_less_often_and_its_end_too() {
        let start = Instant::now();
        let mut silence = Silence::new(start);
        assert_eq!(silence.heard(start + FIRST_TOLD / 2), None, "nobody was told");
        let since = start + FIRST_TOLD / 2;
        for times in [1, 2, 4, 8] {
            let at = silence.tell_at();
            assert_eq!(at, since + FIRST_TOLD * times);
            assert_eq!(silence.tell(at), FIRST_TOLD * times);
        }
        let end = since + FIRST_TOLD * 9;
        assert_eq!(silence.heard(end), Some(FIRST_TOLD * 9));
        assert_eq!((silence.heard(end), silence.tell_at()), (None, end + FIRST_TOLD));
    }

    #[test]
    fn whoever_is_waited_for_is_named() {
        let silent = Duration::from_secs(31);
        let text = describe(&[(1, false), (2, true)], silent);
        assert_eq!(text, "nothing was heard for 31 s from worker 1; worker 2, which is being started");
        let many: Vec<(u32, bool)> = (0..9).map(|worker| (worker, false)).collect();
        assert!(describe(&many, silent).ends_with("worker 3; 5 more"));
    }
}
