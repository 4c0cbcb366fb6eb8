use super::*;
use crate::tune::prune::Pruner;
use crate::tune::sampler::SamplerKind;
use crate::tune::space::{Point, Space, Value};

mod exhaustive;
mod random;

/// Three trials of two epochs, two at once, drawn at random.
fn settings() -> Settings {
    Settings {
        space: Space::parse(&["x=0..1"]).unwrap(),
        sampler: SamplerKind::Random,
        pruner: Pruner::None,
        goal: "loss".into(),
        direction: Direction::Minimise,
        target: None,
        trials: 3,
        parallel: 2,
        epochs: 2,
        least_epochs: 1,
        workers: Workers::Fixed(1),
        max_workers: None,
        budget: None,
        deadline: None,
        seed: 1,
        enqueued: Vec::new(),
    }
}

/// Does what it is told, one trial after the other, each at `cost` an epoch, with a value for each trial and epoch.
fn run(settings: Settings, cost: f64, value: impl Fn(&Trial, u32) -> f64) -> Study {
    let mut study = Study::new(settings).unwrap();
    study.tell(Event::Looked).unwrap();
    for _ in 0..10_000 {
        let Some(trial) = study.trials().iter().find(|trial| trial.state.is_in_flight()) else { break };
        let (number, epoch) = (trial.number, trial.epoch() + 1);
        match &trial.state {
            State::Pausing => study.tell(Event::Paused { trial: number }).unwrap(),
            State::Stopping(_) => study.tell(Event::Stopped { trial: number }).unwrap(),
            _ if trial.epoch() >= trial.until => study.tell(Event::Finished { trial: number }).unwrap(),
            _ => {
                let value = value(trial, epoch);
                study.tell(Event::Spent { trial: number, cost }).unwrap();
                if study.trials()[number as usize].state == State::Running {
                    study.tell(Event::Reported { trial: number, epoch, value }).unwrap();
                }
                Vec::new()
            }
        };
    }
    assert!(study.end_reason().is_some(), "{:?}", study.trials());
    study
}

fn x(trial: &Trial) -> f64 {
    trial.point["x"].number().unwrap()
}

fn states(study: &Study) -> Vec<&State> {
    study.trials().iter().map(|trial| &trial.state).collect()
}

#[test]
fn all_trials_run_and_the_best_is_known() {
    let study = run(settings(), 1.0, |trial, epoch| x(trial) / f64::from(epoch));
    assert_eq!(study.end_reason(), Some(&End::Complete { trials: 3 }));
    let least = study.trials().iter().map(|trial| x(trial) / 2.0).fold(f64::INFINITY, f64::min);
    assert_eq!(study.best().unwrap().1, least);
    assert_eq!(study.curve().last().unwrap().1, least);
    assert_eq!(study.spent(), 6.0);
}

#[test]
fn a_large_value_is_good_where_it_is_maximised() {
    let study = run(Settings { direction: Direction::Maximise, ..settings() }, 0.0, |trial, _| x(trial));
    assert_eq!(study.best().unwrap().1, study.trials().iter().map(x).fold(0.0, f64::max));
    assert!(study.curve().is_sorted_by(|a, b| a.1 <= b.1));
}

#[test]
fn enqueued_points_come_first() {
    let enqueued = vec![Point::from([("x".into(), Value::Number(0.25))])];
    let study = run(Settings { enqueued, ..settings() }, 0.0, |trial, _| x(trial));
    assert_eq!(x(&study.trials()[0]), 0.25);
    let enqueued = vec![Point::from([("y".into(), Value::Number(0.25))])];
    assert!(matches!(Study::new(Settings { enqueued, ..settings() }), Err(SettingsError::Enqueued { number: 0, .. })));
}

#[test]
fn a_goal_that_is_no_number_is_a_failed_trial() {
    let study = run(settings(), 0.0, |trial, _| if trial.number == 1 { f64::NAN } else { 1.0 });
    assert!(matches!(states(&study)[1], State::Failed(why) if why.contains("NaN")));
    assert_eq!(study.end_reason(), Some(&End::Complete { trials: 3 }));
    let study = run(settings(), 0.0, |_, _| f64::INFINITY);
    assert!(matches!(study.end_reason(), Some(End::AllFailed { trials: 3, .. })));
    assert_eq!(study.best(), None);
}

#[test]
fn a_target_ends_it() {
    let study = run(Settings { target: Some(0.0), trials: 50, ..settings() }, 0.0, |trial, _| {
        f64::from(3 - trial.number as i32)
    });
    assert_eq!(study.end_reason(), Some(&End::Target { value: 0.0, target: 0.0 }));
    assert!(study.trials().len() < 6);
}

#[test]
fn a_space_that_is_used_up_ends_it() {
    let space = Space::parse(&["x=1|2"]).unwrap();
    for sampler in ["random", "grid", "tpe", "gp", "cma-es", "evolution", "auto"] {
        let settings = Settings { space: space.clone(), sampler: sampler.parse().unwrap(), trials: 9, ..settings() };
        assert_eq!(
            run(settings, 0.0, |trial, _| x(trial)).end_reason(),
            Some(&End::Exhausted { points: 2 }),
            "{sampler}"
        );
    }
}

#[test]
fn a_budget_is_never_exceeded_and_used_as_far_as_it_goes() {
    let settings = Settings { budget: Some(9.0), trials: 50, ..settings() };
    let study = run(settings, 1.0, |trial, _| x(trial));
    assert!(matches!(study.end_reason(), Some(End::Budget { .. })), "{:?}", study.end_reason());
    assert_eq!(study.spent(), 8.0, "four trials of two epochs; half a trial is not started");
}

#[test]
fn a_budget_below_one_trial_is_said() {
    let below = Settings { budget: Some(1.5), ..settings() };
    let study = run(below, 1.0, |trial, _| x(trial));
    assert_eq!(study.end_reason(), Some(&End::BelowOneTrial { budget: 1.5, trial: Some(2.0) }));
    assert_eq!(study.spent(), 1.0);
    let nothing = run(Settings { budget: Some(0.0), ..settings() }, 1.0, |_, _| 0.0);
    assert_eq!(nothing.end_reason(), Some(&End::BelowOneTrial { budget: 0.0, trial: None }));
}

#[test]
fn the_deadline_stops_what_runs() {
    let mut study = Study::new(Settings { deadline: Some(10.0), ..settings() }).unwrap();
    study.tell(Event::Looked).unwrap();
    assert!(study.tell(Event::Passed { now: 9.9 }).unwrap().is_empty());
    assert_eq!(
        study.tell(Event::Passed { now: 10.0 }).unwrap(),
        [Action::Stop { trial: 0 }, Action::Stop { trial: 1 }]
    );
    study.tell(Event::Stopped { trial: 0 }).unwrap();
    let last = study.tell(Event::Failed { trial: 1, why: "killed".into() }).unwrap();
    assert_eq!(last, [Action::End { reason: End::Deadline { deadline: 10.0 } }]);
}

#[test]
fn successive_halving_pauses_promotes_and_brings_one_to_the_end() {
    let halving = Settings { pruner: Pruner::Asha(3), trials: 9, epochs: 9, ..settings() };
    let study = run(halving, 1.0, |trial, epoch| x(trial) + 1.0 / f64::from(epoch));
    let (best, _) = study.best().unwrap();
    assert_eq!(best.epoch(), 9);
    assert_eq!(best.state, State::Done);
    let least = study.trials().iter().map(x).fold(f64::INFINITY, f64::min);
    assert_eq!(x(best), least);
    assert!(study.spent() < 9.0 * 9.0 / 2.0, "{}", study.spent());
    assert!(states(&study).iter().all(|state| matches!(state, State::Paused | State::Done)));
}

#[test]
fn the_median_stops_what_is_worse() {
    let median = Settings { pruner: Pruner::Median, trials: 20, epochs: 8, parallel: 1, ..settings() };
    let study = run(median, 1.0, |trial, _| f64::from((trial.number * 7) % 20));
    let pruned = states(&study).iter().filter(|state| ***state == State::Pruned).count();
    assert!((3..15).contains(&pruned), "{pruned}");
    assert_eq!(study.best().unwrap().1, 0.0);
}

#[test]
fn whole_trials_start_as_soon_as_they_fit() {
    let space = Space::parse(&["workers=1|2|4"]).unwrap();
    let enqueued = [4, 4, 1, 2].map(|workers| Point::from([("workers".into(), Value::Integer(workers))])).to_vec();
    let workers = Workers::Parameter("workers".into());
    let capped = Settings { space, workers, enqueued, max_workers: Some(6), trials: 4, parallel: 3, ..settings() };
    let mut study = Study::new(capped.clone()).unwrap();
    let started = |actions: Vec<Action>| -> Vec<u32> {
        actions
            .iter()
            .filter_map(|action| match action {
                Action::Start { trial, .. } => Some(*trial),
                _ => None,
            })
            .collect()
    };
    // The second does not fit beside the first; the third does, and the fourth then not.
    assert_eq!(started(study.tell(Event::Looked).unwrap()), [0, 2]);
    assert_eq!(study.workers(), 5);
    assert_eq!(started(study.tell(Event::Failed { trial: 0, why: "lost".into() }).unwrap()), [1]);
    let error = Study::new(Settings { max_workers: Some(3), ..capped }).unwrap_err();
    assert_eq!(error, SettingsError::TooManyWorkers { workers: 4, cap: 3 });
}

#[test]
fn a_loop_outside_asks_for_each_trial() {
    let mut study = Study::new(Settings { parallel: 0, trials: 2, epochs: 1, ..settings() }).unwrap();
    assert!(study.tell(Event::Looked).unwrap().is_empty());
    assert!(matches!(study.tell(Event::Asked).unwrap()[..], [Action::Start { trial: 0, .. }]));
    assert!(matches!(study.tell(Event::Asked).unwrap()[..], [Action::Start { trial: 1, .. }]));
    for trial in [1, 0] {
        study.tell(Event::Reported { trial, epoch: 1, value: 0.5 }).unwrap();
        study.tell(Event::Finished { trial }).unwrap();
    }
    assert_eq!(study.tell(Event::Asked).unwrap(), [Action::End { reason: End::Complete { trials: 2 } }]);
    assert!(matches!(study.tell(Event::Asked), Err(StudyError::Over(_))));
}

#[test]
fn events_that_cannot_be_change_nothing() {
    let mut study = Study::new(settings()).unwrap();
    study.tell(Event::Looked).unwrap();
    study.tell(Event::Reported { trial: 0, epoch: 1, value: 1.0 }).unwrap();
    let before = study.kept.clone();
    for event in [
        Event::Finished { trial: 9 },
        Event::Finished { trial: 2 },
        Event::Reported { trial: 0, epoch: 1, value: 1.0 },
        Event::Spent { trial: 0, cost: -1.0 },
        Event::Spent { trial: 0, cost: f64::NAN },
        Event::Asked,
    ] {
        assert!(study.tell(event.clone()).is_err(), "{event:?}");
        assert_eq!(study.kept, before);
    }
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let error = |settings: Settings| Study::new(settings).map(|_| ()).unwrap_err();
    assert_eq!(error(Settings { trials: 0, ..settings() }), SettingsError::NoTrials);
    assert_eq!(error(Settings { epochs: 0, ..settings() }), SettingsError::NoEpochs);
    assert_eq!(error(Settings { workers: Workers::Fixed(0), ..settings() }), SettingsError::NoWorkers);
    assert!(matches!(error(Settings { budget: Some(f64::NAN), ..settings() }), SettingsError::NotFinite { .. }));
    let by_x = Settings { workers: Workers::Parameter("x".into()), ..settings() };
    assert_eq!(error(by_x), SettingsError::WorkersParameter("x".into()));
}

#[test]
fn settings_events_and_actions_survive_json() {
    let settings = Settings { pruner: Pruner::Hyperband(3), budget: Some(0.1), ..settings() };
    let json = serde_json::to_string(&settings).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings);
    let actions = Study::new(settings).unwrap().tell(Event::Looked).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Action>>(&serde_json::to_string(&actions).unwrap()).unwrap(), actions);
    let event = Event::Reported { trial: 3, epoch: 1, value: 0.1 };
    assert_eq!(serde_json::from_str::<Event>(&serde_json::to_string(&event).unwrap()).unwrap(), event);
}
