//! How late something was: by the wall, and by the processor time of the thread that took most.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How soon something must be over.
const SOON: Duration = Duration::from_millis(250);

/// The same for what only waits, on a machine that may be busy with other things. A call that stalls for seconds is too late,
/// whatever it does meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// How late something was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Late {
    pub wall: Duration,
    /// Processor time of the thread that took most of it meanwhile.
    pub busiest: Duration,
}

impl Late {
    pub fn is_too_late(&self) -> bool {
        self.wall > PATIENCE || self.wall.min(self.busiest) > SOON
    }
}

impl fmt::Display for Late {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} late, {:?} on one thread", self.wall, self.busiest)
    }
}

/// The processor time of every thread of this process so far, by its number.
pub struct Threads(BTreeMap<String, Duration>);

impl Threads {
    pub fn now() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let times = tasks.filter_map(|task| {
            let task = task.ok()?;
            // A thread that has just ended has no file any more.
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
            Some((task.file_name().into_string().ok()?, Duration::from_nanos(nanoseconds)))
        });
        Self(times.collect())
    }

    /// The most that one thread has taken since then.
    pub fn busiest_since(&self, then: &Self) -> Duration {
        let before = |thread: &String| then.0.get(thread).copied().unwrap_or_default();
        self.0.iter().map(|(thread, &time)| time.saturating_sub(before(thread))).max().unwrap_or_default()
    }
}

#[test]
fn the_busiest_thread_is_found() {
    let then = Threads::now();
    let worked = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_secs(10) {
                let busiest = Threads::now().busiest_since(&then);
                if busiest >= Duration::from_millis(20) {
                    return busiest;
                }
            }
            Duration::ZERO
        });
        work.join().unwrap()
    });
    assert!(worked >= Duration::from_millis(20), "{worked:?}");
}

#[test]
fn a_stall_of_seconds_is_too_late_whoever_had_the_cores() {
    let (second, none) = (Duration::from_secs(1), Duration::ZERO);
    let late = |wall, busiest| Late { wall, busiest }.is_too_late();
    assert!(late(2 * second, none) && late(second / 3, second / 3));
    assert!(!late(second / 2, none) && !late(second / 5, second / 5) && !late(none, second));
}
