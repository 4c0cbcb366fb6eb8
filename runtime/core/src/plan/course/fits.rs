//! Whether a round is sure to cost no more than is left of a budget.
//!
//! What a round costs is known from those before it. What nothing is known about, or what takes longer than it should, is
//! bounded by time: workers that are busy on all they have cannot cost more than so much a second, and a round that lasts
//! for what is left by that price is ended in its middle. Nothing of it counts then, but the budget is kept.

/// A step must fit even if it takes so many times what is expected.
const MARGIN: f64 = 1.1;

/// What a step takes with the workers that there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub seconds: f64,
    pub cost: f64,
}

/// Whether a round may begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fits {
    /// It may; and takes so many seconds at most, if there is a budget.
    Within(Option<f64>),
    /// So many steps of it may.
    Steps(u64),
    /// Not even one step may.
    No,
}

/// Whether a round of so many steps may begin, with so much left and workers that cost so much a second at most.
pub fn fits(steps: u64, left: Option<f64>, pace: Option<Pace>, most_second: f64) -> Fits {
    let Some(left) = left else { return Fits::Within(None) };
    if left.is_nan() || left <= 0.0 {
        return Fits::No;
    }
    let seconds = if most_second > 0.0 { left / most_second } else { f64::INFINITY };
    let within = Fits::Within(seconds.is_finite().then_some(seconds));
    let Some(pace) = pace else { return if steps > 1 { Fits::Steps(1) } else { within } };
    let most = |of: f64, each: f64| if each > 0.0 { of / (each * MARGIN) } else { f64::INFINITY };
    let most = most(left, pace.cost).min(most(seconds, pace.seconds)).floor();
    match most {
        _ if most >= steps as f64 => within,
        _ if most >= 1.0 => Fits::Steps(most as u64),
        _ => Fits::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Option<Pace> = Some(Pace { seconds: 0.1, cost: 0.01 });

    #[test]
    fn without_a_budget_everything_fits() {
        assert_eq!(fits(u64::MAX, None, None, 1.0), Fits::Within(None));
    }

    #[test]
    fn what_is_known_fits_with_a_margin_in_cost_and_in_time() {
        assert_eq!(fits(9, Some(0.1), PACE, 0.01), Fits::Within(Some(10.0)));
        assert_eq!(fits(10, Some(0.1), PACE, 0.01), Fits::Steps(9));
        // Workers that may cost more than they did have less time.
        assert_eq!(fits(9, Some(0.1), PACE, 0.2), Fits::Steps(4));
        assert_eq!(fits(1, Some(0.01), PACE, 0.01), Fits::No);
    }

    #[test]
    fn what_nothing_is_known_about_begins_with_one_step_and_ends_in_time() {
        assert_eq!(fits(10, Some(0.1), None, 0.01), Fits::Steps(1));
        assert_eq!(fits(1, Some(0.1), None, 0.01), Fits::Within(Some(10.0)));
    }

    #[test]
    fn nothing_left_is_enough_for_nothing_unless_it_is_free() {
        for left in [0.0, -1.0, f64::NAN] {
            assert_eq!(fits(1, Some(left), PACE, 1.0), Fits::No, "{left}");
        }
        assert_eq!(fits(5, Some(1e-9), Some(Pace { seconds: 1.0, cost: 0.0 }), 0.0), Fits::Within(None));
    }
}
