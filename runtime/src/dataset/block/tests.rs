use proptest::prelude::*;

use super::*;
use crate::dataset::rows::Element;
use crate::digest::Digest;

fn reference(bytes: &[u8], count: usize) -> BlockRef {
    BlockRef { digest: Digest::of(bytes), count: count as u32, bytes: bytes.len() as u64 }
}

fn labels() -> impl Strategy<Value = Option<Labels>> {
    prop_oneof![Just(None), Just(Some(Labels::Class)), (1..4_u32).prop_map(|width| Some(Labels::Values { width })),]
}

prop_compose! {
    fn dense_rows()(
        count in 1..20_usize, shape in prop::collection::vec(1..5_usize, 0..4), labels in labels(),
        element in prop_oneof![Just(Element::U8), Just(Element::I32), Just(Element::F32)]
    )(
        bytes in prop::collection::vec(any::<u8>(), count * shape.iter().product::<usize>() * element.size()),
        classes in prop::collection::vec(0..9_u8, count * labels.map_or(0, Labels::size)),
        count in Just(count), shape in Just(shape), labels in Just(labels), element in Just(element)
    ) -> (Rows, Features, Option<Labels>) {
        (Rows { count, features: Values::Dense(bytes), labels: classes }, Features::Dense { element, shape }, labels)
    }
}

prop_compose! {
    fn sparse_rows()(
        samples in prop::collection::vec(prop::collection::btree_map(0..50_u32, -9.0..9.0_f32, 0..6), 1..20),
        labels in labels()
    ) -> (Rows, Features, Option<Labels>) {
        let mut starts = vec![0];
        for sample in &samples {
            starts.push(starts[starts.len() - 1] + sample.len() as u32);
        }
        let (columns, values) = samples.iter().flatten().map(|(column, value)| (*column, *value)).unzip();
        let features = Values::Sparse { starts, columns, values };
        let bytes = vec![1; samples.len() * labels.map_or(0, Labels::size)];
        (Rows { count: samples.len(), features, labels: bytes }, Features::Sparse { columns: 50 }, labels)
    }
}

fn sparse() -> (Rows, Features) {
    let features = Values::Sparse { starts: vec![0, 2, 3], columns: vec![1, 4, 0], values: vec![0.5, 1.5, 2.5] };
    (Rows { count: 2, features, labels: Vec::new() }, Features::Sparse { columns: 5 })
}

proptest! {
    #[test]
    fn rows_come_back_from_their_block((rows, features, labels) in prop_oneof![dense_rows(), sparse_rows()]) {
        let bytes = encode(&rows, &features, labels).unwrap();
        prop_assert_eq!(decode(&bytes, &reference(&bytes, rows.count), &features, labels).unwrap(), rows);
    }

    #[test]
    fn a_block_of_another_length_is_refused(
        (rows, features, labels) in prop_oneof![dense_rows(), sparse_rows()], cut in 1..8_usize
    ) {
        let bytes = encode(&rows, &features, labels).unwrap();
        let whole = reference(&bytes, rows.count);
        let short = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(decode(short, &whole, &features, labels).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), count: u32, claimed: u64, small in 0..9_u32,
        labels in labels(), columns in 0..300_u32
    ) {
        let features = Features::Sparse { columns };
        let digest = Digest::of(&bytes);
        for (count, size) in [(count, claimed), (small, bytes.len() as u64), (u32::MAX, u64::MAX)] {
            let _ = decode(&bytes, &BlockRef { digest, count, bytes: size }, &features, labels);
        }
    }

    #[test]
    fn a_part_of_rows_is_those_rows((rows, features, labels) in prop_oneof![dense_rows(), sparse_rows()], cut: prop::sample::Index) {
        let cut = cut.index(rows.count + 1);
        let mut copy = Rows::of(&features);
        prop_assert!(copy.extend(&rows, 0..cut) && copy.extend(&rows, cut..rows.count));
        prop_assert_eq!(&copy, &rows);
        prop_assert!(encode(&copy, &features, labels).is_ok());
    }
}

#[test]
fn a_layout_says_where_each_part_lies() {
    let block = BlockRef { digest: Digest::of(b""), count: 2, bytes: 8 + 12 + 24 };
    let layout = block.layout(&Features::Sparse { columns: 5 }, Some(Labels::Class)).unwrap();
    assert_eq!(layout.labels, 0..8);
    assert_eq!(layout.features, Body::Sparse { starts: 8..20, columns: 20..32, values: 32..44 });
}

#[test]
fn damaged_starts_are_refused() {
    let (rows, features) = sparse();
    let good = encode(&rows, &features, None).unwrap();
    let whole = reference(&good, 2);
    for (place, value) in [(0, 1_u32), (4, 4), (4, u32::MAX), (8, 2)] {
        let mut bytes = good.clone();
        bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        let error = decode(&bytes, &whole, &features, None).unwrap_err();
        assert!(matches!(error, BlockError::Starts { .. }), "{place} {value}: {error}");
    }
}

#[test]
fn a_column_that_is_not_there_is_refused() {
    let (rows, _) = sparse();
    let error = encode(&rows, &Features::Sparse { columns: 4 }, None).unwrap_err();
    assert_eq!(error, BlockError::Column { sample: 0, column: 4, columns: 4 });
}

#[test]
fn columns_that_are_not_ascending_are_refused() {
    let features = Values::Sparse { starts: vec![0, 2], columns: vec![3, 3], values: vec![1.0, 2.0] };
    let rows = Rows { count: 1, features, labels: Vec::new() };
    assert_eq!(encode(&rows, &Features::Sparse { columns: 9 }, None), Err(BlockError::Order { sample: 0 }));
}

#[test]
fn a_negative_class_is_refused() {
    let features = Features::Dense { element: Element::U8, shape: vec![] };
    let bytes = [&(-1_i32).to_le_bytes()[..], &[7]].concat();
    let error = decode(&bytes, &reference(&bytes, 1), &features, Some(Labels::Class)).unwrap_err();
    assert_eq!(error, BlockError::Class { sample: 0, label: -1 });
}
