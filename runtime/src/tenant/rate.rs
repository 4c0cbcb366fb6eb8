//! Requests per second: a token bucket that holds one second's worth.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::locks::Lock;

/// A token bucket. Its rate is given with every request, so that a changed quota holds at once.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<(f64, Instant)>,
}

impl RateLimiter {
    pub fn new(per_second: u32) -> Self {
        Self { state: Mutex::new((f64::from(per_second), Instant::now())) }
    }

    /// Takes a token, or says after how long one will be there.
    pub fn take(&self, per_second: u32) -> Result<(), Duration> {
        self.take_at(per_second, Instant::now())
    }

    fn take_at(&self, per_second: u32, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(per_second);
        let mut state = self.state.locked();
        let (tokens, last) = *state;
        let tokens = (tokens + now.saturating_duration_since(last).as_secs_f64() * rate).min(rate);
        let taken = tokens >= 1.0;
        *state = (if taken { tokens - 1.0 } else { tokens }, now);
        match taken {
            true => Ok(()),
            false if per_second == 0 => Err(Duration::from_secs(60)),
            // Rounded up, so that whoever waits that long really finds a token.
            false => Err(Duration::from_secs_f64((1.0 - tokens) / rate) + Duration::from_nanos(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_one_second_passes_and_then_tokens_come_back() {
        let limiter = RateLimiter::new(3);
        let start = Instant::now();
        for _ in 0..3 {
            assert!(limiter.take_at(3, start).is_ok());
        }
        let wait = limiter.take_at(3, start).unwrap_err();
        assert!(wait <= Duration::from_millis(334), "{wait:?}");
        assert!(limiter.take_at(3, start + wait).is_ok());
    }

    #[test]
    fn a_rate_of_zero_lets_nothing_through() {
        assert!(RateLimiter::new(0).take(0).is_err());
    }
}
