//! All orders of events, for studies small enough.

use std::collections::HashSet;

use super::*;

/// What can happen in a state of the study: to each trial in flight whatever may happen to it.
pub fn possible(study: &Study, values: &[f64]) -> Vec<Event> {
    let mut events = Vec::new();
    for trial in study.trials().iter().filter(|trial| trial.state.is_in_flight()) {
        let number = trial.number;
        events.push(Event::Failed { trial: number, why: "lost".into() });
        match trial.state {
            State::Pausing => events.push(Event::Paused { trial: number }),
            State::Stopping(_) => events.push(Event::Stopped { trial: number }),
            _ if trial.epoch() >= trial.until => events.push(Event::Finished { trial: number }),
            _ => {
                let epoch = trial.epoch() + 1;
                events.extend(values.iter().map(|&value| Event::Reported { trial: number, epoch, value }));
            }
        }
    }
    events
}

/// What must be true in every state.
pub fn check(study: &Study) {
    let in_flight = study.trials().iter().filter(|trial| trial.state.is_in_flight()).count();
    assert!(in_flight <= study.settings.parallel as usize, "{in_flight} run");
    assert!(study.workers() <= study.settings.max_workers.unwrap_or(u32::MAX), "{} workers", study.workers());
    assert!(study.trials().len() <= study.settings.trials as usize);
    if study.end_reason().is_some() {
        assert_eq!(in_flight, 0);
        assert!(study.trials().iter().all(|trial| trial.state.is_over() || trial.state == State::Paused));
    } else {
        assert!(in_flight > 0, "nothing runs, and nothing ever will: {:?}", study.trials());
    }
}

/// Follows every order of events to its end. Gives how many states there are.
fn explore(settings: Settings, values: &[f64]) -> usize {
    let mut first = Study::new(settings.clone()).unwrap();
    first.tell(Event::Looked).unwrap();
    let (mut open, mut known) = (vec![(first, vec![Event::Looked])], HashSet::new());
    let (mut ends, mut with_finished) = (0, 0);
    while let Some((study, events)) = open.pop() {
        check(&study);
        if !known.insert(serde_json::to_string(&study.kept).unwrap()) {
            continue;
        }
        let possible = possible(&study, values);
        assert_eq!(possible.is_empty(), study.end_reason().is_some());
        if possible.is_empty() {
            ends += 1;
            with_finished += usize::from(study.trials().iter().any(|trial| trial.state == State::Done));
            assert_eq!(Study::replay(settings.clone(), &events).unwrap().kept, study.kept);
        }
        for event in possible {
            let mut next = study.clone();
            next.tell(event.clone()).unwrap();
            open.push((next, events.iter().cloned().chain([event]).collect()));
        }
    }
    assert!(ends > 0 && with_finished > 0);
    known.len()
}

#[test]
fn without_a_pruner_no_order_loses_a_trial() {
    assert!(explore(settings(), &[1.0, f64::NAN]) > 100);
}

#[test]
fn with_halving_no_order_loses_a_trial() {
    let halving = Settings { pruner: Pruner::Asha(2), ..settings() };
    assert!(explore(halving, &[1.0, 2.0]) > 1_000);
}

#[test]
fn under_a_cap_no_order_starves_a_trial() {
    let space = Space::parse(&["workers=1|2|3"]).unwrap();
    let workers = Workers::Parameter("workers".into());
    assert!(explore(Settings { space, workers, max_workers: Some(3), epochs: 1, ..settings() }, &[1.0, 2.0]) > 50);
}
