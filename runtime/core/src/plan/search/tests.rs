use super::*;

const MIB: u64 = 1 << 20;

const BOUNDS: Bounds =
    Bounds { least_workers: 1, most_workers: 16, least_memory: 128 * MIB, most_memory: 3072 * MIB, memory_step: MIB };

const RATE: Rate = Rate { function_second: 0.0, gib_second: 1.666_67e-5, fixed_second: 0.0 };

fn size(workers: u32, mib: u64) -> Size {
    Size { workers, memory: mib * MIB }
}

/// Some work that is not divided, some that is, by shares of cores that memory buys, and an exchange.
fn seconds(size: Size) -> f64 {
    let cores = ((size.memory / MIB) as f64 / 1769.0).min(1.0);
    0.01 + 0.2 / (f64::from(size.workers) * cores) + 0.002 * f64::from(size.workers)
}

fn probe(size: Size) -> Probe {
    let cost = seconds(size) * RATE.second(f64::from(size.workers), size.memory);
    Probe { size, iterations: 10, seconds: seconds(size), cost }
}

fn rest(limits: Limits) -> Rest {
    Rest { iterations: 1_000, limits }
}

fn searched(aim: Aim, rest: &Rest, seed: u64) -> Search {
    let mut search = Search::new(&BOUNDS, RATE, 1, size(2, 512), seed);
    while let Next::Try { size, .. } = search.next(aim, rest, &BOUNDS) {
        search.tell(probe(size));
    }
    search
}

#[test]
fn the_jobs_own_shape_is_tried_first_and_then_one_of_each_other_quarter() {
    let search = searched(Aim::Cheapest, &rest(Limits::default()), 7);
    let tried: Vec<Size> = search.probes().iter().map(|it| it.size).collect();
    assert_eq!(tried[0], size(2, 512));
    assert!(tried[1].workers >= 4 && tried[1].memory > 627 * MIB, "{}", tried[1]);
    assert!((FIRST..=PROBES).contains(&tried.len()));
    let mut once = tried.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), tried.len(), "a shape was tried twice");
}

#[test]
fn the_choice_is_near_the_optimum_for_each_aim() {
    for seed in 0..10 {
        for (aim, limits) in [
            (Aim::Cheapest, Limits::default()),
            (Aim::Fastest, Limits::default()),
            (Aim::Cheapest, Limits { seconds: Some(80.0), cost: None }),
            (Aim::Fastest, Limits { seconds: None, cost: Some(0.008) }),
        ] {
            let rest = rest(limits);
            let search = searched(aim, &rest, seed);
            let choice = search.choose(aim, &rest, &BOUNDS).unwrap();
            let total = |size: Size| (1_000.0 * seconds(size), 1_000.0 * probe(size).cost);
            let is_within = |(seconds, cost): (f64, f64)| {
                limits.seconds.is_none_or(|it| seconds <= it) && limits.cost.is_none_or(|it| cost <= it)
            };
            let value = |(seconds, cost): (f64, f64)| if aim == Aim::Cheapest { cost } else { seconds };
            let all = candidates::all(&BOUNDS).into_iter().map(total).filter(|it| is_within(*it));
            let best = all.map(value).fold(f64::INFINITY, f64::min);
            let ours = total(choice.size);
            assert!(value(ours) < 1.15 * best, "{aim:?} {limits:?} {seed}: {} for {best}: {}", value(ours), choice.why);
            assert!(is_within(ours), "{aim:?} {limits:?} {seed}: {}", choice.why);
        }
    }
}

#[test]
fn where_nothing_keeps_the_limit_the_least_violating_shape_is_chosen_and_called_so() {
    let rest = rest(Limits { seconds: Some(1.0), cost: None });
    let search = searched(Aim::Cheapest, &rest, 3);
    let choice = search.choose(Aim::Cheapest, &rest, &BOUNDS).unwrap();
    assert!(
        !choice.is_feasible && choice.why.starts_with("No shape is expected to be done within 1.0 s."),
        "{}",
        choice.why
    );
    let least = candidates::all(&BOUNDS).into_iter().map(seconds).fold(f64::INFINITY, f64::min);
    assert!(seconds(choice.size) < 1.15 * least, "{}", choice.why);
}

#[test]
fn the_same_words_give_the_same_tries() {
    let sizes = |seed| searched(Aim::Fastest, &rest(Limits::default()), seed).probes().to_vec();
    assert_eq!(sizes(5), sizes(5));
    assert_ne!(sizes(5), sizes(6));
}

#[test]
fn one_shape_alone_is_chosen_at_once() {
    let bounds = Bounds { most_workers: 1, most_memory: 128 * MIB, ..BOUNDS };
    let mut search = Search::new(&bounds, RATE, 1, size(1, 128), 1);
    let all = rest(Limits::default());
    assert_eq!(search.choose(Aim::Cheapest, &all, &bounds), None);
    assert!(matches!(search.next(Aim::Cheapest, &all, &bounds), Next::Try { .. }));
    search.tell(probe(size(1, 128)));
    assert!(matches!(search.next(Aim::Cheapest, &all, &bounds), Next::Done { .. }));
    assert_eq!(search.choose(Aim::Cheapest, &all, &bounds).unwrap().size, size(1, 128));
}

#[test]
fn what_says_nothing_is_not_learned_from() {
    let mut search = Search::new(&BOUNDS, RATE, 1, size(2, 512), 1);
    for (seconds, iterations) in [(0.0, 5), (f64::NAN, 5), (1.0, 0), (-1.0, 5)] {
        search.tell(Probe { size: size(2, 512), iterations, seconds, cost: 1.0 });
    }
    assert!(search.probes().is_empty());
    search.tell(Probe { size: size(2, 512), iterations: 5, seconds: 1.0, cost: 0.0 });
    assert!(search.probes()[0].cost > 0.0, "cost that was not measured is that of the prices");
}

#[test]
fn a_shape_that_is_told_of_again_is_averaged_by_iterations() {
    let mut search = Search::new(&BOUNDS, RATE, 1, size(2, 512), 1);
    search.tell(Probe { size: size(2, 512), iterations: 10, seconds: 1.0, cost: 1.0 });
    search.tell(Probe { size: size(2, 512), iterations: 30, seconds: 16.0, cost: 1.0 });
    assert!((search.known(size(2, 512)).unwrap().seconds - 8.0).abs() < 1e-9);
    search.drift(2.0);
    assert!((search.known(size(2, 512)).unwrap().seconds - 16.0).abs() < 1e-9);
}

#[test]
fn points_are_all_shapes_with_what_the_rest_takes() {
    let rest = rest(Limits::default());
    let search = searched(Aim::Cheapest, &rest, 2);
    let points = search.points(&rest);
    assert!(points.len() >= candidates::all(&BOUNDS).len());
    assert_eq!(points.iter().filter(|it| it.is_measured).count(), search.probes().len());
    let off = points.iter().filter(|it| {
        let real = 1_000.0 * seconds(Size { workers: it.workers, memory: it.memory });
        !(it.seconds.least * 0.98..=it.seconds.most * 1.02).contains(&real)
    });
    let (off, all) = (off.count(), points.len());
    assert!(off * 4 <= all, "{off} of {all} times are outside of their intervals");
}
