//! The time that a client has for a request's head.
//!
//! HTTP starts a timer for each head, and drops it when the head is there. A timer of the executor's would be put into a
//! list that all threads share, and taken out again, each time. So a connection keeps one alarm: it stays in the list, set
//! for the first moment that it was wanted for, and is only set anew when it goes off too early.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use crate::locks::Lock;

type Alarm = Pin<Box<tokio::time::Sleep>>;

/// The timer of one connection.
#[derive(Default)]
pub struct HeadTimer {
    /// The alarm, while nobody waits for it.
    kept: Arc<Mutex<Option<Alarm>>>,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let alarm = self.kept.locked().take();
        Box::pin(Until { deadline, alarm, kept: self.kept.clone() })
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Until>() {
            Some(until) => until.get_mut().deadline = deadline,
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// Ready at a moment.
struct Until {
    deadline: Instant,
    alarm: Option<Alarm>,
    kept: Arc<Mutex<Option<Alarm>>>,
}

impl Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { deadline, alarm, .. } = self.get_mut();
        let deadline = tokio::time::Instant::from_std(*deadline);
        let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        loop {
            ready!(alarm.as_mut().poll(context));
            if alarm.deadline() >= deadline {
                return Poll::Ready(());
            }
            // It was set for an earlier request.
            alarm.as_mut().reset(deadline);
        }
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        *self.kept.locked() = self.alarm.take();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(3_600);

    /// Has the timer set its alarm for that moment, and lets go of it.
    fn set(timer: &HeadTimer, deadline: Instant) {
        assert!(timer.sleep_until(deadline).as_mut().now_or_never().is_none());
    }

    #[tokio::test]
    async fn an_alarm_that_was_set_for_earlier_goes_off_at_the_later_moment() {
        let (timer, begun) = (HeadTimer::default(), Instant::now());
        set(&timer, begun + SOON);
        timer.sleep_until(begun + SOON * 3).await;
        assert!(begun.elapsed() >= SOON * 3);
        // It has gone off by now, and serves once more.
        timer.sleep_until(begun + SOON * 5).await;
        assert!(begun.elapsed() >= SOON * 5);
    }

    #[tokio::test]
    async fn an_alarm_that_was_set_for_later_goes_off_at_the_earlier_moment() {
        let timer = HeadTimer::default();
        set(&timer, Instant::now() + LATE);
        let soon = timer.sleep(SOON);
        assert!(tokio::time::timeout(LATE / 60, soon).await.is_ok());
    }

    #[tokio::test]
    async fn a_timer_that_is_reset_waits_for_the_new_moment() {
        let (timer, begun) = (HeadTimer::default(), Instant::now());
        let mut sleep = timer.sleep_until(begun + LATE);
        assert!(sleep.as_mut().now_or_never().is_none());
        timer.reset(&mut sleep, begun + SOON);
        assert!(tokio::time::timeout(LATE / 60, sleep).await.is_ok());
        assert!(begun.elapsed() >= SOON);
    }
}
