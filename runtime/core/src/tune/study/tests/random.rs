//! Thousands of random studies, with random things happening to them.

use super::exhaustive::{check, possible};
use super::*;
use crate::tune::chance::{Chance, Purpose};

fn pick<T: Clone>(chance: &mut Chance, of: &[T]) -> T {
    of[chance.below(of.len())].clone()
}

fn drawn(chance: &mut Chance, seed: u64) -> Settings {
    let spaces: [&[&str]; 3] =
        [&["x=0..1"], &["x=log:0.001..1", "kind=a|b|c", "n=int:1..9 if kind=a"], &["x=1|2|3", "workers=int:1..3"]];
    let space = Space::parse(pick(chance, &spaces)).unwrap();
    let has_workers = space.parameters().iter().any(|parameter| parameter.name == "workers");
    let samplers = ["random", "grid:3", "tpe", "cma-es", "evolution", "auto"];
    Settings {
        workers: if has_workers { Workers::Parameter("workers".into()) } else { Workers::Fixed(2) },
        space,
        sampler: pick(chance, &samplers).parse().unwrap(),
        pruner: pick(chance, &["none", "median", "asha:2", "asha:3", "hyperband:2"]).parse().unwrap(),
        direction: pick(chance, &[Direction::Maximise, Direction::Minimise]),
        trials: 1 + chance.below(14) as u32,
        parallel: 1 + chance.below(4) as u32,
        epochs: 1 + chance.below(9) as u32,
        max_workers: pick(chance, &[None, Some(3), Some(5)]),
        budget: pick(chance, &[None, None, Some(20.0), Some(3.0)]),
        deadline: pick(chance, &[None, None, Some(40.0)]),
        seed,
        ..settings()
    }
}

/// A study to its end: events in any order, some trials fail, some report nonsense, costs vary.
fn lived(seed: u64) {
    let mut chance = Chance::new(seed, Purpose::Design, 77);
    let settings = drawn(&mut chance, seed);
    let mut study = Study::new(settings.clone()).unwrap();
    let mut events = vec![Event::Looked];
    study.tell(Event::Looked).unwrap();
    let fails = pick(&mut chance, &[0.0, 0.05, 0.3, 1.0]);
    let mut paused = vec![0_u32; settings.trials as usize];
    for step in 0.. {
        assert!(step < 20_000, "it never ends: {settings:?} {:?}", study.trials());
        check(&study);
        if study.end_reason().is_some() {
            break;
        }
        let value = if chance.unit() < 0.02 { f64::NAN } else { chance.unit() };
        let mut possible = possible(&study, &[value]);
        possible.retain(|event| !matches!(event, Event::Failed { .. }) || chance.unit() < fails);
        if possible.is_empty() {
            continue;
        }
        let event = pick(&mut chance, &possible);
        let mut told = Vec::new();
        if let Event::Reported { trial, .. } = event {
            // Every epoch is paid for before it is known what it came to.
            told.push(Event::Spent { trial, cost: 1.0 });
        }
        told.push(event);
        if chance.unit() < 0.1 {
            told.push(Event::Passed { now: f64::from(step) });
        }
        for event in told {
            let could = match event {
                Event::Reported { trial, .. } => study.trials()[trial as usize].state == State::Running,
                _ => true,
            };
            if could {
                for action in study.tell(event.clone()).unwrap() {
                    if let Action::Pause { trial } = action {
                        paused[trial as usize] += 1;
                    }
                }
                events.push(event);
            }
        }
    }
    if let Some(budget) = settings.budget {
        assert!(study.spent() <= budget, "{} of {budget}", study.spent());
    }
    let again = Study::replay(settings.clone(), &events).unwrap();
    assert_eq!(again.kept, study.kept);
    // Whoever killed it in the middle finds the same trials in flight as whoever did not.
    let half = events.len() / 2;
    let mut resumed = Study::replay(settings, &events[..half]).unwrap();
    for event in &events[half..] {
        resumed.tell(event.clone()).unwrap();
    }
    assert_eq!(resumed.kept, study.kept);
    assert!(study.in_force().is_empty());
}

#[test]
fn random_studies_end_and_can_be_replayed() {
    (0..3_000).for_each(lived);
}
