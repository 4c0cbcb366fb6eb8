use proptest::prelude::*;

use super::*;

/// By the definition, over a list of numbers for each entry.
fn naive(groups: &[Vec<f64>]) -> Statistics {
    let mean = |numbers: &Vec<f64>| numbers.iter().sum::<f64>() / numbers.len() as f64;
    let squares = |numbers: &Vec<f64>| numbers.iter().map(|number| (number - mean(numbers)).powi(2)).sum();
    Statistics {
        count: groups[0].len() as u64,
        mean: groups.iter().map(mean).collect(),
        squares: groups.iter().map(squares).collect(),
        low: groups.iter().map(|numbers| numbers.iter().copied().fold(f64::INFINITY, f64::min) as f32).collect(),
        high: groups.iter().map(|numbers| numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max) as f32).collect(),
    }
}

fn assert_near(found: &Statistics, expected: &Statistics) {
    assert_eq!((found.count, &found.low, &found.high), (expected.count, &expected.low, &expected.high));
    let pairs = |one: &[f64], other: &[f64]| one.iter().copied().zip(other.iter().copied()).collect::<Vec<_>>();
    let scale = f64::from(expected.low.iter().chain(&expected.high).fold(1.0_f32, |most, value| most.max(value.abs())));
    for (found, expected) in pairs(&found.mean, &expected.mean) {
        assert!((found - expected).abs() <= 1e-12 * scale, "mean {found} {expected}");
    }
    for (found, expected) in pairs(&found.squares, &expected.squares) {
        assert!((found - expected).abs() <= 1e-11 * scale * scale * 100.0, "squares {found} {expected}");
    }
}

/// Numbers of a dense sample, group by group.
fn grouped(numbers: &[f64], features: &Features) -> Vec<Vec<f64>> {
    let (width, groups) = (features.width(), features.groups());
    let mut by_group = vec![Vec::new(); groups];
    for (index, number) in numbers.iter().enumerate() {
        by_group[index % width / (width / groups)].push(*number);
    }
    by_group
}

fn merged(rows: &Rows, features: &Features, cut: usize) -> Statistics {
    let mut statistics = Statistics::nothing(features.groups());
    for range in [0..cut, cut..rows.count] {
        let mut part = Rows::of(features);
        assert!(part.extend(rows, range));
        statistics.merge(&Statistics::of(&part, features));
    }
    statistics
}

prop_compose! {
    fn dense()(count in 1..30_usize, shape in prop::collection::vec(1..12_usize, 0..4))
        (numbers in prop::collection::vec(any::<i16>(), count * shape.iter().product::<usize>()),
         count in Just(count), shape in Just(shape), cut in 0..=count) -> (Vec<i16>, usize, Vec<usize>, usize) {
        (numbers, count, shape, cut)
    }
}

proptest! {
    #[test]
    fn bytes_agree_with_the_definition((numbers, count, shape, cut) in dense()) {
        let bytes: Vec<u8> = numbers.iter().map(|number| *number as u8).collect();
        let features = Features::Dense { element: Element::U8, shape };
        let exact: Vec<f64> = bytes.iter().map(|byte| f64::from(*byte)).collect();
        let rows = Rows { count, features: Values::Dense(bytes), labels: Vec::new() };
        assert_near(&merged(&rows, &features, cut), &naive(&grouped(&exact, &features)));
    }

    #[test]
    fn floats_agree_with_the_definition((numbers, count, shape, cut) in dense()) {
        let values: Vec<f32> = numbers.iter().map(|number| f32::from(*number) / 300.0 + 1000.0).collect();
        let features = Features::Dense { element: Element::F32, shape };
        let exact: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let rows = Rows { count, features: Values::Dense(bytes), labels: Vec::new() };
        assert_near(&merged(&rows, &features, cut), &naive(&grouped(&exact, &features)));
    }

    #[test]
    fn whole_numbers_agree_with_the_definition((numbers, count, shape, cut) in dense()) {
        let features = Features::Dense { element: Element::I32, shape };
        let exact: Vec<f64> = numbers.iter().map(|number| f64::from(*number)).collect();
        let bytes = numbers.iter().flat_map(|number| i32::from(*number).to_le_bytes()).collect();
        let rows = Rows { count, features: Values::Dense(bytes), labels: Vec::new() };
        assert_near(&merged(&rows, &features, cut), &naive(&grouped(&exact, &features)));
    }

    #[test]
    fn sparse_zeros_count_as_if_they_were_written(
        samples in prop::collection::vec(prop::collection::btree_map(0..7_u32, -9.0..9.0_f32, 0..7), 1..20), cut: prop::sample::Index
    ) {
        let features = Features::Sparse { columns: 7 };
        let mut rows = Rows::of(&features);
        let mut by_column = vec![Vec::new(); 7];
        let Values::Sparse { starts, columns, values } = &mut rows.features else { unreachable!() };
        for sample in &samples {
            columns.extend(sample.keys());
            values.extend(sample.values());
            starts.push(columns.len() as u32);
            (0..7).for_each(|column| by_column[column as usize].push(f64::from(*sample.get(&column).unwrap_or(&0.0))));
        }
        rows.count = samples.len();
        assert_near(&merged(&rows, &features, cut.index(rows.count + 1)), &naive(&by_column));
    }
}

#[test]
fn long_runs_of_the_highest_byte_do_not_overflow() {
    let features = Features::Dense { element: Element::U8, shape: vec![1, 1, 3 * BYTES_PER_SUM] };
    let rows = Rows { count: 1, features: Values::Dense(vec![255; 3 * BYTES_PER_SUM]), labels: Vec::new() };
    let found = Statistics::of(&rows, &features);
    assert_eq!((found.mean[0], found.squares[0], found.low[0]), (255.0, 0.0, 255.0));
}

#[test]
fn long_columns_of_the_highest_byte_do_not_overflow() {
    let features = Features::Dense { element: Element::U8, shape: vec![1] };
    let rows =
        Rows { count: 3 * BYTES_PER_SUM, features: Values::Dense(vec![255; 3 * BYTES_PER_SUM]), labels: Vec::new() };
    let found = Statistics::of(&rows, &features);
    assert_eq!((found.mean[0], found.squares[0], found.low[0]), (255.0, 0.0, 255.0));
}

#[test]
fn entries_are_channels_one_for_a_picture_and_columns() {
    let groups = |shape: &[usize]| Features::Dense { element: Element::U8, shape: shape.to_vec() }.groups();
    assert_eq!([groups(&[3, 32, 32]), groups(&[28, 28]), groups(&[64]), groups(&[])], [3, 1, 64, 1]);
}

#[test]
fn features_that_are_too_many_are_counted_as_one() {
    assert_eq!(Features::Sparse { columns: u32::MAX }.groups(), 1);
    assert_eq!(Features::Dense { element: Element::F32, shape: vec![MOST_GROUPS + 1] }.groups(), 1);
}

#[test]
fn sparse_data_that_grows_wider_is_as_if_it_had_been_so_wide() {
    let widths = [3, 40, MOST_GROUPS as u32 + 10, u32::MAX];
    let features = Values::Sparse { starts: vec![0, 2, 3], columns: vec![0, 2, 1], values: vec![1.0, 4.0, -2.0] };
    let rows = Rows { count: 2, features, labels: Vec::new() };
    for pair in widths.windows(2) {
        let (from, to) = (Features::Sparse { columns: pair[0] }, Features::Sparse { columns: pair[1] });
        let mut statistics = Statistics::of(&rows, &from);
        statistics.widen(&from, &to);
        assert_near(&statistics, &Statistics::of(&rows, &to));
    }
}
