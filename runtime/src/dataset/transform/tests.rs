use proptest::prelude::*;

use super::*;
use crate::dataset::manifest::FORMAT;
use crate::dataset::{Labels, Split};

pub(in crate::dataset) fn manifest(
    element: Element,
    shape: &[usize],
    transform: Transform,
    statistics: Statistics,
) -> Manifest {
    Manifest {
        format: FORMAT,
        features: Features::Dense { element, shape: shape.to_vec() },
        labels: Some(Labels::Class),
        class_names: Vec::new(),
        transform,
        statistics,
        train: Split::default(),
        test: Split::default(),
        synthetic: None,
    }
}

/// Statistics of rows, by `entries` equal parts of them, as a first course in statistics would compute them.
pub(in crate::dataset) fn statistics(rows: &[Vec<f64>], entries: usize) -> Statistics {
    let run = rows[0].len() / entries;
    let mut found = Statistics { count: (rows.len() * run) as u64, ..Statistics::default() };
    for entry in 0..entries {
        let values: Vec<f64> = rows.iter().flat_map(|row| &row[entry * run..(entry + 1) * run]).copied().collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        found.mean.push(mean);
        found.squares.push(values.iter().map(|value| (value - mean).powi(2)).sum());
        found.low.push(values.iter().copied().fold(f64::INFINITY, f64::min) as f32);
        found.high.push(values.iter().copied().fold(f64::NEG_INFINITY, f64::max) as f32);
    }
    found
}

pub(in crate::dataset) fn stored(element: Element, row: &[f64]) -> Vec<u8> {
    let bytes = |&value: &f64| match element {
        Element::U8 => vec![value as u8],
        Element::I32 => (value as i32).to_le_bytes().to_vec(),
        Element::F32 => (value as f32).to_le_bytes().to_vec(),
    };
    row.iter().flat_map(bytes).collect()
}

pub(in crate::dataset) fn naive(transform: Transform, statistics: &Statistics, row: &[f64]) -> Vec<f64> {
    let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
    let run = row.len() / statistics.mean.len();
    let each = |(column, &value): (usize, &f64)| {
        let entry = column / run;
        let (least, most) = (f64::from(statistics.low[entry]), f64::from(statistics.high[entry]));
        match transform {
            Transform::None => value,
            Transform::Standardise if least == most => value - statistics.mean[entry],
            Transform::Standardise => {
                let deviation = (statistics.squares[entry] / statistics.count as f64).sqrt();
                (value - statistics.mean[entry]) / deviation
            }
            Transform::MinMax { low, .. } if least == most => value - least + f64::from(low),
            Transform::MinMax { low, high } => {
                f64::from(low) + (value - least) / (most - least) * (f64::from(high) - f64::from(low))
            }
            Transform::Normalise if length == 0.0 => 0.0,
            Transform::Normalise => value / length,
        }
    };
    row.iter().enumerate().map(each).collect()
}

pub(in crate::dataset) fn element() -> impl Strategy<Value = Element> {
    prop_oneof![Just(Element::U8), Just(Element::I32), Just(Element::F32)]
}

pub(in crate::dataset) fn transform() -> impl Strategy<Value = Transform> {
    prop_oneof![
        Just(Transform::None),
        Just(Transform::Standardise),
        Just(Transform::MinMax { low: -1.0, high: 3.0 }),
        Just(Transform::Normalise),
    ]
}

proptest! {
    #[test]
    fn rows_equal_a_naive_computation(
        element in element(),
        transform in transform(),
        entries in 1..5_usize,
        run in 1..20_usize,
        numbers in prop::collection::vec(0..=255_u8, 400),
    ) {
        let width = entries * run;
        let offset = if element == Element::U8 { 0.0 } else { -100.0 };
        let scale = if element == Element::F32 { 0.37 } else { 1.0 };
        let value = |&number: &u8| f64::from((f64::from(number) * scale + offset) as f32);
        let rows: Vec<Vec<f64>> =
            numbers.chunks_exact(width).take(5).map(|row| row.iter().map(value).collect()).collect();
        let statistics = statistics(&rows, entries);
        let prepared = Prepared::new(&manifest(element, &[entries, run], transform, statistics.clone())).unwrap();
        for row in &rows {
            let mut out = vec![f32::NAN; width];
            prepared.row(&stored(element, row), &mut out);
            for (out, want) in out.into_iter().zip(naive(transform, &statistics, row)) {
                prop_assert!((f64::from(out) - want).abs() <= 2e-5 * (1.0 + want.abs()), "{out} is not {want}");
            }
        }
    }
}

fn apply(manifest: &Manifest, row: &[f64]) -> Vec<f32> {
    let Features::Dense { element, .. } = &manifest.features else { panic!("dense") };
    let mut out = vec![f32::NAN; row.len()];
    Prepared::new(manifest).unwrap().row(&stored(*element, row), &mut out);
    out
}

#[test]
fn what_never_changed_is_only_shifted() {
    let statistics = statistics(&[vec![7.0, 1.0], vec![7.0, 2.0]], 2);
    let standard = manifest(Element::F32, &[2], Transform::Standardise, statistics.clone());
    assert_eq!([apply(&standard, &[7.0, 1.0])[0], apply(&standard, &[9.0, 1.0])[0]], [0.0, 2.0]);
    let range = manifest(Element::F32, &[2], Transform::MinMax { low: -1.0, high: 1.0 }, statistics);
    assert_eq!([apply(&range, &[7.0, 1.0])[0], apply(&range, &[9.0, 1.0])[0]], [-1.0, 1.0]);
}

#[test]
fn a_sample_of_zeros_stays_so_when_normalised() {
    for element in [Element::U8, Element::I32, Element::F32] {
        let normal = manifest(element, &[9], Transform::Normalise, Statistics::default());
        assert_eq!(apply(&normal, &[0.0; 9]), [0.0; 9]);
    }
}

#[test]
fn samples_of_any_magnitude_are_normalised() {
    let normal = manifest(Element::F32, &[2], Transform::Normalise, Statistics::default());
    for magnitude in [1e-44, 1e-20, 1.0, 1e20, 1e38] {
        let row = [f64::from((3.0 * magnitude) as f32), f64::from((3.0 * magnitude) as f32)];
        let found = apply(&normal, &row);
        assert!(found.iter().all(|value| (value - 0.5_f32.sqrt()).abs() < 1e-6), "{magnitude}: {found:?}");
    }
}

#[test]
fn large_integers_are_told_apart() {
    let rows = [vec![1_700_000_000.0], vec![1_700_000_001.0], vec![1_700_000_002.0]];
    let statistics = Statistics { low: vec![0.0], high: vec![1.0], ..statistics(&rows, 1) };
    let standard = manifest(Element::I32, &[1], Transform::Standardise, statistics);
    let found: Vec<f32> = rows.iter().map(|row| apply(&standard, row)[0]).collect();
    assert_eq!(found, [-1.224_744_9, 0.0, 1.224_744_9]);
}

#[test]
fn statistics_that_are_not_finite_are_refused() {
    let wrong = statistics(&[vec![1.0, f64::NAN], vec![2.0, 3.0]], 2);
    let refused = Prepared::new(&manifest(Element::F32, &[2], Transform::Standardise, wrong));
    assert_eq!(refused.err(), Some(TransformError::NotFinite { transform: "standardise", entry: 1 }));
}

#[test]
fn statistics_that_do_not_fit_are_refused() {
    let other = statistics(&[vec![1.0; 3], vec![2.0; 3]], 3);
    let refused = Prepared::new(&manifest(Element::F32, &[4], Transform::Standardise, other.clone()));
    assert_eq!(refused.err(), Some(TransformError::WrongStatistics { what: "mean", entries: 3, width: 4 }));
    let short = Statistics { high: vec![1.0], ..other };
    let refused = Prepared::new(&manifest(Element::F32, &[3], Transform::MinMax { low: 0.0, high: 1.0 }, short));
    assert_eq!(refused.err(), Some(TransformError::WrongStatistics { what: "high", entries: 1, width: 3 }));
}

#[test]
fn sparse_features_are_not_standardised() {
    let sparse = Features::Sparse { columns: 3 };
    let wrong = Manifest {
        features: sparse,
        ..manifest(Element::F32, &[3], Transform::Standardise, statistics(&[vec![1.0; 3]], 3))
    };
    assert_eq!(Prepared::new(&wrong).err(), Some(TransformError::Sparse { transform: "standardise" }));
}
