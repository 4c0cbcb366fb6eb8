use super::*;

const MIB: u64 = 1 << 20;

/// Table I of the paper: 256 to 1536 MB, 64 MB apart.
const BOUNDS: Bounds = Bounds {
    least_workers: 1,
    most_workers: 1,
    least_memory: 256 * MIB,
    most_memory: 1536 * MIB,
    memory_step: 64 * MIB,
};

/// Seconds of an iteration: some that do not shrink, and work that is divided by the share of a core that memory buys.
#[derive(Clone, Copy)]
struct Capped {
    fixed: f64,
    work: f64,
    /// MiB from which on more memory is no faster.
    full: f64,
}

impl Capped {
    fn tried(&self, memory: u64, noise: f64) -> Tried {
        let mib = (memory / MIB) as f64;
        let seconds = (self.fixed + self.work / (mib.min(self.full) / 1769.0)) * noise;
        Tried { memory, seconds, cost: 1.63e-8 * 100.0 * mib * seconds }
    }

    fn least(&self, loss: impl Fn(&Tried) -> f64) -> f64 {
        (256..=1536).step_by(64).map(|mib| loss(&self.tried(mib * MIB, 1.0))).fold(f64::INFINITY, f64::min)
    }
}

/// The mean of ten iterations, each with noise of 5 %.
fn noise(random: &mut ChaCha12Rng) -> f64 {
    let sum: f64 = (0..12).map(|_| (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64).sum();
    (0.05 / 10.0_f64.sqrt() * (sum - 6.0)).exp()
}

fn run(capped: Capped, objective: Objective, seed: u64) -> (MemoryTuner, u64) {
    let mut tuner = MemoryTuner::new(objective, &BOUNDS, seed);
    let mut random = ChaCha12Rng::seed_from_u64(seed + 1_000);
    loop {
        match tuner.ask() {
            Next::Try { memory, iterations, .. } => {
                assert!(BOUNDS.hold(1, memory) && (memory - BOUNDS.least_memory).is_multiple_of(64 * MIB));
                assert_eq!(iterations, 10);
                tuner.tell(capped.tried(memory, noise(&mut random)));
            }
            Next::Settled { memory, .. } => return (tuner, memory),
        }
    }
}

/// Small and large jobs, with an optimum at either end and in the middle.
const JOBS: [Capped; 5] = [
    Capped { fixed: 0.5, work: 0.5, full: 1769.0 },
    Capped { fixed: 0.0, work: 2.0, full: 1024.0 },
    Capped { fixed: 3.0, work: 1.0, full: 1769.0 },
    Capped { fixed: 2.0, work: 1.0, full: 700.0 },
    Capped { fixed: 0.1, work: 4.0, full: 1769.0 },
];

/// How far a tuner ends from the least that there is, over all jobs, both objectives and some seeds: those over a tenth.
fn far_off(seeds: std::ops::Range<u64>) -> Vec<String> {
    let mut far = Vec::new();
    for (job, capped) in JOBS.into_iter().enumerate() {
        for objective in [Objective::Cost, Objective::Ratio] {
            let loss = |tried: &Tried| match objective {
                Objective::Cost => tried.cost,
                Objective::Ratio => tried.cost * tried.seconds,
            };
            let least = capped.least(loss);
            for seed in seeds.clone() {
                let (tuner, memory) = run(capped, objective, seed);
                let over = loss(&capped.tried(memory, 1.0)) / least;
                if over > 1.1 {
                    let tried: Vec<u64> = tuner.tried().iter().map(|it| mib(it.memory)).collect();
                    far.push(format!("job {job}, {objective:?}, seed {seed}: {over:.3} with {tried:?}"));
                }
            }
        }
    }
    far
}

#[test]
fn both_objectives_end_within_a_tenth_of_the_optimum_for_ten_seeds_of_ten() {
    let far = far_off(0..10);
    assert!(far.is_empty(), "{} of 100:\n{}", far.len(), far.join("\n"));
}

#[test]
fn at_most_one_in_a_hundred_runs_ends_further_off() {
    let far = far_off(10..110);
    assert!(far.len() <= 10, "{} of 1000:\n{}", far.len(), far.join("\n"));
}

#[test]
fn at_most_five_steps_follow_on_two_different_sizes() {
    for seed in 0..200 {
        let (tuner, settled) = run(JOBS[3], Objective::Ratio, seed);
        let tried = tuner.tried();
        assert!((2..=7).contains(&tried.len()), "{} tries", tried.len());
        assert_ne!(tried[0].memory, tried[1].memory);
        assert!(tried.iter().any(|it| it.memory == settled), "settled on a size that was never tried");
    }
}

/// By hand: sizes 300 and 700 of 1000 MiB, and costs whose logarithms lie 0.4 apart.
#[test]
fn a_step_follows_the_slope_from_the_better_size() {
    let bounds = Bounds { least_memory: 100 * MIB, most_memory: 1100 * MIB, memory_step: MIB, ..BOUNDS };
    let mut tuner = MemoryTuner::new(Objective::Cost, &bounds, 1);
    tuner.tell(Tried { memory: 700 * MIB, seconds: 1.0, cost: 2.0 * 0.4_f64.exp() });
    tuner.tell(Tried { memory: 300 * MIB, seconds: 1.0, cost: 2.0 });
    // The slope is 0.4 / 0.4 = 1, a quarter of that is 250 MiB: below the least, so the least.
    let Next::Try { memory, why, .. } = tuner.ask() else { panic!("it settled") };
    assert_eq!(mib(memory), 100, "{why}");
    assert!(why.contains("towards less memory"), "{why}");
    // There it is as dear as with 500 MiB: the best size is enclosed, and the gap above it is the wider one.
    tuner.tell(Tried { memory: 100 * MIB, seconds: 1.0, cost: 2.0 * 0.2_f64.exp() });
    let Next::Try { memory, why, .. } = tuner.ask() else { panic!("it settled") };
    assert_eq!(mib(memory), 500, "{why}");
}

#[test]
fn a_step_is_longer_while_the_direction_stays_and_shorter_once_it_turns() {
    let bounds = Bounds { least_memory: 100 * MIB, most_memory: 1100 * MIB, memory_step: MIB, ..BOUNDS };
    let mut tuner = MemoryTuner::new(Objective::Cost, &bounds, 1);
    let mut costs = [(1000, 0.0), (800, -0.1), (675, -0.2)].into_iter();
    let mut next = || {
        let (mib, log) = costs.next().unwrap();
        tuner.tell(Tried { memory: mib * MIB, seconds: 1.0, cost: f64::exp(log) });
        tuner.ask()
    };
    next();
    // A slope of 0.5, a quarter of it of 1000 MiB: 125 MiB down from 800.
    assert!(matches!(next(), Next::Try { memory, .. } if mib(memory) == 675));
    // A slope of 0.8, three eighths of it: 300 MiB down.
    assert!(matches!(next(), Next::Try { memory, .. } if mib(memory) == 375));
}

#[test]
fn a_size_without_a_measure_is_left_out() {
    let mut tuner = MemoryTuner::new(Objective::Cost, &BOUNDS, 3);
    let Next::Try { memory: first, .. } = tuner.ask() else { panic!("it settled") };
    tuner.tell(Tried { memory: first, seconds: f64::NAN, cost: 1.0 });
    let Next::Try { memory: second, .. } = tuner.ask() else { panic!("it settled") };
    assert_ne!(first, second);
    tuner.tell(Tried { memory: second, seconds: 1.0, cost: 0.0 });
    assert!(matches!(tuner.ask(), Next::Settled { memory, .. } if memory == first));
}

#[test]
fn a_single_size_settles_at_once() {
    let bounds = Bounds { most_memory: 256 * MIB, ..BOUNDS };
    let mut tuner = MemoryTuner::new(Objective::Cost, &bounds, 3);
    tuner.tell(Tried { memory: 256 * MIB, seconds: 1.0, cost: 1.0 });
    assert!(matches!(tuner.ask(), Next::Settled { memory, .. } if memory == 256 * MIB));
}
