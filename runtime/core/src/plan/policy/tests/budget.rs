//! Whatever times, rooms and policies: bounds hold, no budget is exceeded, and a record brings a planner back.

use proptest::prelude::*;

use super::super::*;
use super::simulated::{BOUNDS, RATE, spec};
use crate::plan::bounds::Room;

/// A stretch as it comes: how long steps take, what room there is, what changes, what is set by hand.
#[derive(Clone, Debug)]
struct Turn {
    step: f64,
    beside: f64,
    room: u32,
    batch: u32,
    epoch: u64,
    pin: Option<(Option<u32>, Option<u64>)>,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let step = prop_oneof![4 => 1e-3..1.0, 1 => 1.0..1e4_f64, 1 => Just(0.0), 1 => Just(f64::NAN)];
    let pin = prop_oneof![
        8 => Just(None),
        1 => Just(Some((None, None))),
        1 => (1_u32..20).prop_map(|it| Some((Some(it), None))),
        1 => (1_u64..40).prop_map(|it| Some((None, Some(it << 27)))),
    ];
    let turn = (step, 0.0..0.1_f64, 1_u32..32, 1_u32..4, 1_u64..200, pin);
    let turn = turn.prop_map(|(step, beside, room, batch, epoch, pin)| Turn { step, beside, room, batch, epoch, pin });
    prop::collection::vec(turn, 1..60)
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Manual),
        Just(Policy::Elastic),
        Just(Policy::Best),
        Just(Policy::Cheapest),
        Just(Policy::Fastest),
        (0.1..1e4_f64).prop_map(Policy::CheapestWithin),
        (1e-6..1e-2_f64).prop_map(Policy::FastestWithin),
        Just(Policy::FengCost),
        Just(Policy::FengRatio),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bounds_and_budgets_hold_on_any_schedule_and_replay_decides_the_same(
        policy in policies(),
        budget in 1e-6..1e-2_f64,
        seed in 0_u64..1_000,
        turns in turns(),
    ) {
        let spec = PlanSpec { limits: Limits { seconds: None, cost: Some(budget) }, ..spec(policy, seed) };
        let hard = policy.limits(&spec.limits).cost.unwrap();
        let mut planner = Planner::new(spec.clone()).unwrap();
        let (mut shape, mut paid, mut pinned) = (spec.start, 0.0, (None, None));
        for turn in &turns {
            if let Some(pin) = turn.pin {
                planner.pin(pin.0, pin.1);
                pinned = pin;
            }
            let room = Room { quota: 24, workers: turn.room, ..Room::ENDLESS };
            let workload = Workload { batch: turn.batch, ..Workload::default() };
            let decision = planner.ask(&Situation { room, workload, left: 1_000 });
            prop_assert!(!decision.why.is_empty());
            match decision.action {
                Action::Stop => break,
                Action::Keep => {}
                Action::Reshape(other) => shape = other,
            }
            let most = room.quota.min(room.workers);
            prop_assert!(shape.workers <= most, "{} workers where there is room for {most}", shape.workers);
            match pinned.0 {
                Some(workers) => prop_assert_eq!(shape.workers, workers.min(most)),
                None => prop_assert!(BOUNDS.within(room).workers(shape.workers) == shape.workers),
            }
            match pinned.1 {
                Some(memory) => prop_assert_eq!(shape.memory, memory),
                None => prop_assert!((BOUNDS.least_memory..=BOUNDS.most_memory).contains(&shape.memory)),
            }
            // Whoever trains ends a stretch before it costs more than its allowance.
            let second = RATE.second(f64::from(shape.workers), shape.memory);
            let allowance = decision.allowance.unwrap();
            let fit = ((allowance / second - turn.beside) / turn.step).floor().clamp(0.0, 1e6);
            let fit = if turn.step > 0.0 { fit as u64 } else { turn.epoch };
            let steps = decision.steps.unwrap_or(u64::MAX).min(turn.epoch).min(fit);
            let seconds = turn.step * steps as f64;
            let cost = ((seconds.max(0.0) + turn.beside) * second).min(allowance);
            paid += cost;
            prop_assert!(paid <= hard, "{paid} of {hard}");
            let ends_epoch = steps == turn.epoch;
            let elapsed = seconds + turn.beside;
            planner.tell(&Observation { shape, workload, steps, seconds, elapsed, cost, ends_epoch });
        }
        // Written and read, as it is kept; times that are none cannot be written, so those records are taken as they are.
        let record = planner.record().to_vec();
        let again = Planner::replay(spec, &record).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let situation = Situation { room: Room::ENDLESS, workload: Workload::default(), left: 500 };
        let (mut one, mut other) = (planner, again);
        prop_assert_eq!(one.ask(&situation), other.ask(&situation));
        prop_assert_eq!(one.spent(), other.spent());
    }
}

fn told(shape: Shape, steps: u64, seconds: f64, cost: f64) -> Observation {
    Observation { shape, workload: Workload::default(), steps, seconds, elapsed: seconds, cost, ends_epoch: true }
}

const ASKED: Situation =
    Situation { room: Room::ENDLESS, workload: Workload { batch: 0, parameters: 0, settings: 0 }, left: 1_000 };

#[test]
fn a_budget_ends_the_job_before_the_step_that_would_exceed_it() {
    let spec = PlanSpec { limits: Limits { seconds: None, cost: Some(1.0) }, ..spec(Policy::Manual, 1) };
    let mut planner = Planner::new(spec.clone()).unwrap();
    let first = planner.ask(&ASKED);
    assert_eq!((first.steps, first.allowance), (Some(FIRST_STEPS), Some(0.98)));
    planner.tell(&told(spec.start, 10, 1.0, 0.5));
    // 0.48 are left, a step costs 0.05: with a tenth more, eight fit.
    let second = planner.ask(&ASKED);
    assert_eq!(second.steps, Some(8));
    assert!(second.why.contains("enough for at most 8 steps"), "{}", second.why);
    planner.tell(&told(spec.start, 9, 0.9, 0.45));
    let last = planner.ask(&ASKED);
    assert_eq!(last.action, Action::Stop);
    assert!(last.why.contains("One more step"), "{}", last.why);
    assert_eq!(planner.ask(&ASKED).action, Action::Stop);
}

#[test]
fn elastic_is_kubemls_rule_on_whole_epochs() {
    let mut planner = Planner::new(spec(Policy::Elastic, 1)).unwrap();
    let mut shape = spec(Policy::Elastic, 1).start;
    let mut workers = Vec::new();
    for seconds in [10.0, 9.0, 9.45, 10.0, 11.0, 12.0, 13.0, 12.6, 6.0] {
        assert_eq!(planner.ask(&ASKED).action, Action::Keep, "nothing is decided twice about one epoch");
        // The epoch comes in two stretches.
        planner.tell(&Observation { ends_epoch: false, ..told(shape, 5, seconds / 2.0, 0.0) });
        assert_eq!(planner.ask(&ASKED).action, Action::Keep);
        planner.tell(&told(shape, 5, seconds / 2.0, 0.0));
        if let Action::Reshape(other) = planner.ask(&ASKED).action {
            shape = other;
        }
        workers.push(shape.workers);
    }
    assert_eq!(workers, [3, 4, 5, 5, 5, 4, 4, 5, 6]);
}

#[test]
fn what_was_set_by_hand_wins_over_every_policy() {
    for policy in [Policy::Elastic, Policy::Best, Policy::Cheapest, Policy::FengCost] {
        let mut planner = Planner::new(spec(policy, 1)).unwrap();
        planner.pin(Some(20), Some(1 << 30));
        let mut shape = spec(policy, 1).start;
        for _ in 0..6 {
            if let Action::Reshape(other) = planner.ask(&ASKED).action {
                shape = other;
            }
            assert_eq!((shape.workers, shape.memory), (20, 1 << 30), "{policy}");
            planner.tell(&told(shape, 10, 1.0, 0.1));
        }
    }
}

#[test]
fn a_record_is_read_as_it_was_written_and_another_jobs_is_refused() {
    let mut planner = Planner::new(spec(Policy::Cheapest, 4)).unwrap();
    for _ in 0..8 {
        let shape = match planner.ask(&ASKED).action {
            Action::Reshape(shape) => shape,
            _ => planner.current,
        };
        planner.tell(&told(shape, 5, 0.1 / f64::from(shape.workers), 1e-6));
    }
    let written = serde_json::to_string(planner.record()).unwrap();
    let record: Vec<Event> = serde_json::from_str(&written).unwrap();
    assert_eq!(record, planner.record());
    assert!(Planner::replay(spec(Policy::Cheapest, 4), &record).is_ok());
    let other = Planner::replay(spec(Policy::Cheapest, 5), &record);
    assert!(matches!(other, Err(BadPlan::Differs { .. })));
}

#[test]
fn a_plan_that_cannot_be_is_refused() {
    let wrong = |change: fn(&mut PlanSpec)| {
        let mut spec = spec(Policy::Cheapest, 1);
        change(&mut spec);
        Planner::new(spec).unwrap_err().to_string()
    };
    assert!(wrong(|it| it.limits.cost = Some(0.0)).contains("limit of 0"));
    assert!(wrong(|it| it.limits.seconds = Some(f64::NAN)).contains("limit of NaN"));
    assert!(wrong(|it| it.reserve = 0.9).contains("0.9 of the budget"));
    assert!(wrong(|it| it.bounds.most_workers = 0).contains("no number of workers"));
    assert!(wrong(|it| it.rate.gib_second = -1.0).contains("price of a second"));
}
