//! Crews: any number of threads, panics, calls within calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weft_gpu::{Crew, Error, Limits, Tensor};

use crate::context_with;

#[test]
fn compute_the_same_bits_with_any_number_of_threads() {
    let context = context_with(4, Limits::default());
    let noise = |seed: usize, count: usize| -> Vec<f32> {
        (0..count).map(|index| ((index * 2_654_435_761 + seed * 40_503) % 1_000_003) as f32 / 7e4 - 7.0).collect()
    };
    let points = context.tensor(&[50_000, 10], &noise(1, 500_000)).unwrap();
    let centroids = context.tensor(&[9, 10], &noise(2, 90)).unwrap();
    let run = || {
        let (assignment, distances) = points.kmeans_assign(&centroids).unwrap();
        let (sums, _) = points.kmeans_accumulate(&assignment, 9).unwrap();
        [distances, sums].map(|tensor| bits(&tensor))
    };
    context.set_threads(1);
    let alone = run();
    for threads in 2..=4 {
        context.set_threads(threads);
        for _ in 0..5 {
            assert!(run() == alone, "{threads} threads");
        }
    }
}

fn bits(tensor: &Tensor) -> Vec<u8> {
    tensor.to_vec::<f32>().unwrap().into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Waits for a condition, but not for ever.
fn wait_for(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn turn_a_panic_into_an_error_and_go_on() {
    let crew = Crew::new(3);
    for round in 0..20 {
        let inside = AtomicUsize::new(0);
        let meet = || {
            inside.fetch_add(1, Ordering::SeqCst);
            assert!(wait_for(|| inside.load(Ordering::SeqCst) == 3), "not all threads came");
        };
        // The caller's own thread panics, or one that helps.
        let error = crew.run(3, &|worker| {
            meet();
            assert!(worker != round % 3, "on purpose");
        });
        assert!(matches!(error, Err(Error::Internal { .. })), "{error:?}");
        let inside = AtomicUsize::new(0);
        crew.run(3, &|_| {
            inside.fetch_add(1, Ordering::SeqCst);
            assert!(wait_for(|| inside.load(Ordering::SeqCst) == 3), "not all threads came");
        })
        .unwrap();
    }
}

#[test]
fn give_each_thread_an_index_of_its_own() {
    let crew = Crew::new(4);
    for threads in 1..=4 {
        let seen: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        crew.run(threads, &|worker| {
            seen[worker].fetch_add(1, Ordering::SeqCst);
            wait_for(|| seen.iter().filter(|seen| seen.load(Ordering::SeqCst) > 0).count() == threads);
        })
        .unwrap();
        let seen: Vec<usize> = seen.iter().map(|seen| seen.load(Ordering::SeqCst)).collect();
        assert_eq!(seen[..threads], vec![1; threads]);
        assert_eq!(seen[threads..], vec![0; 4 - threads]);
    }
}

#[test]
fn let_a_call_within_a_call_work_alone() {
    let crew = Crew::new(2);
    let inner = AtomicUsize::new(0);
    crew.run(1, &|_| {}).unwrap();
    crew.run(2, &|_| {
        crew.run(2, &|worker| {
            assert_eq!(worker, 0);
            inner.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    })
    .unwrap();
    assert!(inner.load(Ordering::SeqCst) >= 1);
}

#[test]
fn survive_many_short_calls_from_many_threads() {
    let crew = Crew::new(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let done = AtomicUsize::new(0);
                    let next = AtomicUsize::new(0);
                    crew.run(3, &|_| {
                        while next.fetch_add(1, Ordering::Relaxed) < 10 {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                    .unwrap();
                    assert_eq!(done.load(Ordering::Relaxed), 10);
                }
            });
        }
    });
}
