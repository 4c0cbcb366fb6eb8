//! A hard cap on what one function of a job computes, by its memory, as clouds have it.
//!
//! A function may compute on so many cores on average, counted in core time. It has a small reserve, so that short steps
//! are not cut; once that is used up it rests after a step until it is within its cap again. What it has not used while it
//! waited for others is not saved beyond the reserve.

use std::time::{Duration, Instant};

/// Core time that may be used at once.
pub const RESERVE: Duration = Duration::from_millis(100);
const GIB: f64 = (1_u64 << 30) as f64;

#[derive(Clone, Debug)]
pub struct Throttle {
    cores: f64,
    /// Seconds of core time that may be used now; less than none if more was used than that.
    left: f64,
    since: Instant,
    used: Duration,
}

impl Throttle {
    /// The cap of a function with so many bytes of memory. None where there is no cap: `cores_per_gib` is 0.
    pub fn new(cores_per_gib: f64, memory: u64, now: Instant) -> Option<Self> {
        let cores = cores_per_gib * memory as f64 / GIB;
        (cores > 0.0).then_some(Self { cores, left: RESERVE.as_secs_f64(), since: now, used: Duration::ZERO })
    }

    /// The same without a reserve to begin with: what a few steps take says then what many do.
    pub fn from_nothing(self) -> Self {
        Self { left: 0.0, ..self }
    }

    /// How many threads can be of use.
    pub fn threads(&self) -> usize {
        self.cores.ceil().max(1.0) as usize
    }

    /// How long the function must rest now that it has used so much core time since it began.
    pub fn rest(&mut self, used: Duration, now: Instant) -> Option<Duration> {
        let earned = self.cores * now.saturating_duration_since(self.since).as_secs_f64();
        let spent = used.saturating_sub(self.used).as_secs_f64();
        self.left = (self.left + earned).min(RESERVE.as_secs_f64()) - spent;
        (self.since, self.used) = (now, used);
        (self.left < 0.0).then(|| Duration::try_from_secs_f64(-self.left / self.cores).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that computes on one core whenever it may: the core time it uses in so many seconds.
    fn used_in(cores_per_gib: f64, memory: u64, seconds: u64) -> f64 {
        let start = Instant::now();
        let mut throttle = Throttle::new(cores_per_gib, memory, start).unwrap();
        let (mut now, mut used) = (start, Duration::ZERO);
        let step = Duration::from_millis(7);
        while now < start + Duration::from_secs(seconds) {
            (now, used) = (now + step, used + step);
            now += throttle.rest(used, now).unwrap_or_default();
        }
        used.as_secs_f64()
    }

    #[test]
    fn a_function_gets_the_share_of_a_core_that_its_memory_gives() {
        for (memory, share) in [(512 << 20, 0.25), (1 << 30, 0.5), (2 << 30, 1.0)] {
            let used = used_in(0.5, memory, 100);
            assert!((used - 100.0 * share).abs() < 0.3, "{used} of {share}");
        }
    }

    #[test]
    fn what_was_not_used_while_others_were_waited_for_is_not_saved() {
        let start = Instant::now();
        let mut throttle = Throttle::new(1.0, 1 << 29, start).unwrap();
        let later = start + Duration::from_secs(60);
        assert_eq!(throttle.rest(Duration::from_millis(100), later), None);
        let rest = throttle.rest(Duration::from_millis(200), later).unwrap();
        assert!((rest.as_secs_f64() - 0.2).abs() < 1e-9, "{rest:?}");
    }

    #[test]
    fn a_function_that_begins_with_nothing_rests_after_its_first_step() {
        let start = Instant::now();
        let mut throttle = Throttle::new(1.0, 1 << 29, start).unwrap().from_nothing();
        let rest = throttle.rest(Duration::from_millis(1), start).unwrap();
        assert!((rest.as_secs_f64() - 0.002).abs() < 1e-9, "{rest:?}");
    }

    #[test]
    fn without_a_cap_there_is_no_throttle() {
        assert!(Throttle::new(0.0, 1 << 30, Instant::now()).is_none());
        assert_eq!(Throttle::new(2.0, 1 << 30, Instant::now()).unwrap().threads(), 2);
    }
}
