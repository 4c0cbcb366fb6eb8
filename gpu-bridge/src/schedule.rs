//! How a learning rate changes from step to step: a factor to it. Pure.

use std::f64::consts::PI;

use crate::{Error, Result};

/// A rise, and what comes after it.
///
/// ```
/// use weft_gpu::schedule::{Decay, Schedule};
///
/// let schedule = Schedule { warm_up: 2, decay: Decay::Stepwise { every: 3, factor: 0.1 } };
/// let factors: Vec<f32> = (0..6).map(|steps| schedule.factor(steps)).collect();
/// assert_eq!(factors, [0.5, 1.0, 1.0, 1.0, 1.0, 0.1]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Steps over which the rate rises, in equal parts, to what it is.
    pub warm_up: u32,
    pub decay: Decay,
}

/// How the rate goes down once it has risen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Decay {
    #[default]
    None,
    /// By a factor, each time so many steps are done.
    Stepwise { every: u32, factor: f32 },
    /// In half a wave over so many steps, down to this share of the rate, where it stays.
    Cosine { steps: u32, floor: f32 },
    /// In a line, likewise.
    Linear { steps: u32, floor: f32 },
}

impl Schedule {
    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        let wrong = match self.decay {
            Decay::Stepwise { every: 0, .. } | Decay::Cosine { steps: 0, .. } | Decay::Linear { steps: 0, .. } => {
                "a decay takes at least one step".to_owned()
            }
            Decay::Stepwise { factor, .. } if !(factor > 0.0 && factor.is_finite()) => {
                format!("the factor `{factor}` must be above 0")
            }
            Decay::Cosine { floor, .. } | Decay::Linear { floor, .. } if !(0.0..=1.0).contains(&floor) => {
                format!("the floor `{floor}` must be between 0 and 1")
            }
            _ => return Ok(()),
        };
        Err(Error::BadArgument { op: "schedule", reason: wrong })
    }

    /// What the rate is multiplied with when so many steps are done.
    pub fn factor(&self, steps: u64) -> f32 {
        let Some(after) = steps.checked_sub(u64::from(self.warm_up)) else {
            return ((steps + 1) as f64 / f64::from(self.warm_up)) as f32;
        };
        let done = |of: u32| (after as f64 / f64::from(of)).min(1.0);
        let down_to = |floor: f32, share: f64| f64::from(floor) + (1.0 - f64::from(floor)) * share;
        let factor = match self.decay {
            Decay::None => 1.0,
            Decay::Stepwise { every, factor } => {
                let times = i32::try_from(after / u64::from(every.max(1))).unwrap_or(i32::MAX);
                f64::from(factor).powi(times)
            }
            Decay::Cosine { steps, floor } => down_to(floor, (1.0 + (PI * done(steps)).cos()) / 2.0),
            Decay::Linear { steps, floor } => down_to(floor, 1.0 - done(steps)),
        };
        factor as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(warm_up: u32, decay: Decay, steps: &[u64]) -> Vec<f32> {
        let schedule = Schedule { warm_up, decay };
        schedule.check().unwrap();
        steps.iter().map(|&steps| schedule.factor(steps)).collect()
    }

    #[test]
    fn without_a_schedule_the_rate_stays() {
        assert_eq!(factors(0, Decay::None, &[0, 1, u64::MAX]), [1.0; 3]);
    }

    #[test]
    fn a_rise_ends_at_the_rate() {
        assert_eq!(factors(4, Decay::None, &[0, 1, 2, 3, 4, 5]), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_wave_and_a_line_start_at_the_rate_and_stay_at_their_floor() {
        let steps = [0, 1, 5, 10, 11, u64::MAX];
        let line = factors(1, Decay::Linear { steps: 10, floor: 0.5 }, &steps);
        assert_eq!(line, [1.0, 1.0, 0.8, 0.55, 0.5, 0.5]);
        let wave = factors(1, Decay::Cosine { steps: 10, floor: 0.0 }, &[0, 1, 6, 11, 12]);
        for (found, expected) in wave.into_iter().zip([1.0, 1.0, 0.5, 0.0, 0.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    #[test]
    fn steps_without_number_bring_it_to_nothing() {
        assert_eq!(factors(0, Decay::Stepwise { every: 1, factor: 0.5 }, &[0, 1, 2, u64::MAX]), [1.0, 0.5, 0.25, 0.0]);
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for decay in [
            Decay::Stepwise { every: 0, factor: 0.5 },
            Decay::Stepwise { every: 1, factor: 0.0 },
            Decay::Stepwise { every: 1, factor: f32::NAN },
            Decay::Cosine { steps: 0, floor: 0.0 },
            Decay::Cosine { steps: 1, floor: -0.1 },
            Decay::Linear { steps: 0, floor: 0.0 },
            Decay::Linear { steps: 1, floor: f32::NAN },
        ] {
            assert!(Schedule { warm_up: 0, decay }.check().is_err(), "{decay:?}");
        }
    }
}
