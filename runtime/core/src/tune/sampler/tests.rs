use super::*;
use crate::tune::space::Value;

const ALL: [&str; 7] = ["auto", "random", "grid:3", "tpe", "gp", "cma-es", "evolution"];

fn mixed() -> Space {
    Space::parse(&["a=0..1", "b=log:0.001..10", "n=int:1..20", "kind=x|y|z", "deep=int:1..4 if kind=x", "fixed=7"])
        .unwrap()
}

/// A study of one trial at a time; gives the points and their values.
fn study(kind: &str, space: &Space, seed: u64, trials: u64, value: impl Fn(&Point) -> Option<f64>) -> Vec<Observation> {
    let mut sampler = Sampler::new(kind.parse().unwrap(), space.clone(), seed);
    let mut done = Vec::new();
    for number in 0..trials {
        let Some(point) = sampler.propose(number, Seen { done: &done, pending: &[] }) else { break };
        space.check(&point, &point).unwrap();
        let value = value(&point);
        done.push(Observation { point, value });
    }
    done
}

fn best(done: &[Observation]) -> f64 {
    done.iter().filter_map(|seen| seen.value).fold(f64::INFINITY, f64::min)
}

fn bowl(point: &Point) -> Option<f64> {
    let number = |name: &str| point[name].number().unwrap_or(0.0);
    let kind = if point["kind"] == Value::Text("y".into()) { 0.0 } else { 0.5 };
    let deep = point.get("deep").and_then(Value::number).map_or(0.0, |deep| 0.1 * deep);
    Some(
        (number("a") - 0.3).powi(2)
            + (number("b").log10() + 1.0).powi(2)
            + ((number("n") - 7.0) / 20.0).powi(2)
            + kind
            + deep,
    )
}

#[test]
fn every_sampler_is_read_as_it_is_written() {
    for text in ALL {
        assert_eq!(text.parse::<SamplerKind>().unwrap().to_string(), text);
    }
    assert_eq!("grid".parse(), Ok(SamplerKind::Grid(5)));
    for text in ["", "grid:1", "grid:", "bayes", "TPE"] {
        assert!(text.parse::<SamplerKind>().is_err(), "{text}");
    }
}

#[test]
fn the_same_seed_proposes_the_same_and_another_one_does_not() {
    for kind in ALL {
        let points =
            |seed| study(kind, &mixed(), seed, 30, bowl).into_iter().map(|seen| seen.point).collect::<Vec<_>>();
        assert_eq!(points(1), points(1), "{kind}");
        assert_eq!(points(1) == points(2), kind.starts_with("grid"), "{kind}");
    }
}

#[test]
fn a_sampler_that_is_made_anew_proposes_what_the_old_one_would_have() {
    let space = mixed();
    for kind in ALL {
        let done = study(kind, &space, 5, 45, bowl);
        for number in [12, 31, 44] {
            let mut anew = Sampler::new(kind.parse().unwrap(), space.clone(), 5);
            let point = anew.propose(number as u64, Seen { done: &done[..number], pending: &[] }).unwrap();
            assert_eq!(point, done[number].point, "{kind} {number}");
        }
    }
}

#[test]
fn models_do_better_than_chance() {
    let mean = |kind| (0..10).map(|seed| best(&study(kind, &mixed(), seed, 50, bowl))).sum::<f64>() / 10.0;
    let random = mean("random");
    for (kind, share) in [("tpe", 0.5), ("gp", 0.1), ("auto", 0.1), ("cma-es", 0.7), ("evolution", 0.7)] {
        assert!(mean(kind) < share * random, "{kind}: {} of {random}", mean(kind));
    }
}

#[test]
fn pending_trials_are_kept_away_from() {
    let space = Space::parse(&["a=0..1", "b=0..1"]).unwrap();
    let value = |point: &Point| {
        Some((point["a"].number().unwrap() - 0.6).powi(2) + (point["b"].number().unwrap() - 0.2).powi(2))
    };
    for kind in ["tpe", "gp"] {
        let done = study(kind, &space, 3, 20, value);
        let mut sampler = Sampler::new(kind.parse().unwrap(), space.clone(), 3);
        let mut pending = Vec::new();
        for number in 20..26 {
            pending.push(sampler.propose(number, Seen { done: &done, pending: &pending }).unwrap());
        }
        for (index, point) in pending.iter().enumerate() {
            assert!(!pending[..index].contains(point), "{kind} proposes {point:?} twice");
        }
    }
}

#[test]
fn points_that_can_be_counted_are_all_proposed_once() {
    let space = Space::parse(&["a=int:1..4", "b=x|y|z", "c=1|2 if b=x"]).unwrap();
    for kind in ALL {
        let done = study(if kind == "grid:3" { "grid:4" } else { kind }, &space, 2, 99, |point| point["a"].number());
        assert_eq!(done.len(), 4 * (2 + 1 + 1), "{kind}");
        for (index, seen) in done.iter().enumerate() {
            assert!(done[..index].iter().all(|other| other.point != seen.point), "{kind}");
        }
    }
}

#[test]
fn a_grid_has_the_ends_of_ranges_and_all_words() {
    let space = Space::parse(&["lr=log:0.001..0.1", "kind=w|x|y|z", "n=int:1..100"]).unwrap();
    let done = study("grid:3", &space, 0, 99, |_| None);
    assert_eq!(done.len(), 3 * 4 * 3);
    let values = |name: &str| done.iter().filter_map(|seen| seen.point[name].number()).collect::<Vec<f64>>();
    assert!(values("lr").iter().any(|lr| (lr - 0.01).abs() < 1e-9));
    assert!(values("n").contains(&1.0) && values("n").contains(&100.0));
}

#[test]
fn trials_that_failed_are_avoided_and_nothing_but_failures_is_survived() {
    let space = Space::parse(&["a=0..1", "b=0..1"]).unwrap();
    let fails = |point: &Point| point["a"].number().filter(|a| *a < 0.5);
    for kind in ["tpe", "gp", "cma-es", "evolution"] {
        // Better the closer to where everything fails.
        let done = study(kind, &space, 1, 60, |point| fails(point).map(|a| -a));
        let failed = done[30..].iter().filter(|seen| seen.value.is_none()).count();
        assert!(failed <= 18, "{kind}: {failed} of 30");
        assert_eq!(study(kind, &space, 1, 30, |_| None).len(), 30, "{kind}");
        assert_eq!(study(kind, &space, 1, 30, |_| Some(1.0)).len(), 30, "{kind}");
    }
}

#[test]
fn cma_es_finds_a_narrow_valley_that_is_not_along_an_axis() {
    let space = Space::parse(&["a=0..1", "b=0..1", "c=0..1"]).unwrap();
    let valley = |point: &Point| {
        let [a, b, c] = ["a", "b", "c"].map(|name| point[name].number().unwrap() - 0.4);
        Some((a + b + c).powi(2) * 100.0 + (a - b).powi(2) + (b - c).powi(2))
    };
    assert!(best(&study("cma-es", &space, 1, 500, valley)) < 1e-6);
}

#[test]
fn hundreds_of_trials_take_the_process_no_longer_than_some() {
    let space = Space::parse(&["a=0..1"]).unwrap();
    let point = |i: u32| Point::from([("a".into(), Value::Number(f64::from(i) / 400.0))]);
    let done: Vec<Observation> = (0..400).map(|i| Observation { point: point(i), value: Some(f64::from(i)) }).collect();
    let mut sampler = Sampler::new(SamplerKind::Gp, space, 1);
    assert!(sampler.propose(400, Seen { done: &done, pending: &[] }).unwrap()["a"].number().unwrap() < 0.1);
}
