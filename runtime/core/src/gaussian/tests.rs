use super::*;

fn wave(point: &[f64]) -> f64 {
    (6.0 * point[0]).sin() + 0.5 * point[1]
}

fn grid(side: usize) -> Vec<Vec<f64>> {
    let step = |i: usize| i as f64 / (side - 1) as f64;
    (0..side * side).map(|i| vec![step(i / side), step(i % side)]).collect()
}

#[test]
fn it_goes_through_what_was_seen_and_is_right_in_between() {
    let points = grid(6);
    let targets: Vec<f64> = points.iter().map(|point| wave(point)).collect();
    let process = Gaussian::fit(&points, &targets).unwrap();
    for (point, target) in points.iter().zip(&targets) {
        let seen = process.predict(point);
        assert!((seen.mean - target).abs() < 0.01 && seen.deviation < 0.02, "{seen:?} {target}");
    }
    for point in [[0.31, 0.77], [0.5, 0.1], [0.87, 0.93]] {
        let between = process.predict(&point);
        assert!((between.mean - wave(&point)).abs() < 0.05, "{between:?} {}", wave(&point));
    }
}

#[test]
fn it_is_less_sure_the_further_away() {
    let points: Vec<Vec<f64>> = [0.4, 0.45, 0.5].iter().map(|&x| vec![x]).collect();
    let process = Gaussian::fit(&points, &[1.0, 3.0, 2.0]).unwrap();
    let deviations: Vec<f64> = [0.5, 0.55, 0.6, 0.8, 1.0].map(|x| process.predict(&[x]).deviation).to_vec();
    assert!(deviations.is_sorted(), "{deviations:?}");
    let far = process.predict(&[1e6]);
    assert!((far.mean - 2.0).abs() < 1e-6, "far away there is nothing but the mean: {far:?}");
}

#[test]
fn an_input_that_changes_nothing_gets_a_longer_length() {
    let points = grid(5);
    let targets: Vec<f64> = points.iter().map(|point| (6.0 * point[0]).sin()).collect();
    let lengths = Gaussian::fit(&points, &targets).unwrap().kernel().lengths.clone();
    assert!(lengths[1] > 3.0 * lengths[0], "{lengths:?}");
}

#[test]
fn noise_is_told_from_signal() {
    let points: Vec<Vec<f64>> = (0..60).map(|i| vec![f64::from(i) / 60.0]).collect();
    // What is added follows no pattern that lengths in reach could explain.
    let noisy: Vec<f64> = (0..60_u64).map(|i| i as f64 / 60.0 + 0.2 * ((i * 7_919 % 61) as f64 / 30.5 - 1.0)).collect();
    let process = Gaussian::fit(&points, &noisy).unwrap();
    assert!((0.06..0.2).contains(&process.noise()), "{}", process.noise());
    assert!((process.predict(&[0.5]).mean - 0.5).abs() < 0.1);
}

#[test]
fn duplicates_and_equal_targets_are_no_trouble() {
    let points = vec![vec![0.5, 0.5]; 12];
    let process = Gaussian::fit(&points, &[1.0; 12]).unwrap();
    assert_eq!(process.predict(&[0.5, 0.5]).mean, 1.0);
    assert_eq!(process.predict(&[0.1, 0.9]).mean, 1.0);
    let alternating: Vec<f64> = (0..12).map(|i| f64::from(i % 2)).collect();
    let process = Gaussian::fit(&points, &alternating).unwrap();
    assert!((process.predict(&[0.5, 0.5]).mean - 0.5).abs() < 0.05);
}

#[test]
fn nearly_equal_points_with_a_kernel_without_noise_are_factored() {
    let points: Vec<Vec<f64>> = (0..30).map(|i| vec![0.5 + f64::from(i) * 1e-12]).collect();
    let targets: Vec<f64> = (0..30).map(f64::from).collect();
    let kernel = Kernel { lengths: vec![100.0], signal: 1.0, noise: 0.0 };
    let process = Gaussian::with_kernel(&points, &targets, &[0], kernel).unwrap();
    assert!(process.predict(&[0.5]).mean.is_finite());
}

#[test]
fn very_large_and_very_small_targets_are_predicted() {
    for scale in [1e-250, 1e-9, 1e9, 1e250] {
        let points = grid(4);
        let targets: Vec<f64> = points.iter().map(|point| scale * wave(point)).collect();
        let seen = Gaussian::fit(&points, &targets).unwrap().predict(&points[5]);
        assert!((seen.mean / targets[5] - 1.0).abs() < 0.05, "{scale}: {seen:?}");
    }
}

#[test]
fn one_observation_is_enough_and_without_inputs_too() {
    let process = Gaussian::fit(&[vec![0.3]], &[7.0]).unwrap();
    assert_eq!(process.predict(&[0.3]).mean, 7.0);
    let process = Gaussian::fit(&[vec![], vec![]], &[1.0, 3.0]).unwrap();
    assert!((process.predict(&[]).mean - 2.0).abs() < 1e-9);
}

#[test]
fn the_same_observations_give_the_same_kernel() {
    let points = grid(4);
    let targets: Vec<f64> = points.iter().map(|point| wave(point)).collect();
    let kernels = [0; 2].map(|_| Gaussian::fit(&points, &targets).unwrap().kernel().clone());
    assert_eq!(kernels[0], kernels[1]);
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    let error = |points: &[Vec<f64>], targets: &[f64]| Gaussian::fit(points, targets).map(|_| ()).unwrap_err();
    assert_eq!(error(&[], &[]), GaussianError::Empty);
    assert_eq!(error(&[vec![1.0]], &[]), GaussianError::Unequal { points: 1, targets: 0 });
    let uneven = [vec![1.0], vec![1.0, 2.0]];
    assert_eq!(error(&uneven, &[1.0, 2.0]), GaussianError::Inputs { point: 1, have: 2, want: 1 });
    assert_eq!(error(&[vec![1.0]], &[f64::NAN]), GaussianError::NotFinite(0));
    assert_eq!(error(&[vec![1.0], vec![f64::INFINITY]], &[1.0, 2.0]), GaussianError::NotFinite(1));
}

#[test]
fn inputs_that_share_a_group_share_a_length() {
    let points = grid(4);
    let targets: Vec<f64> = points.iter().map(|point| wave(point)).collect();
    let process = Gaussian::fit_grouped(&points, &targets, &[0, 0]).unwrap();
    assert_eq!(process.kernel().lengths.len(), 1);
}
