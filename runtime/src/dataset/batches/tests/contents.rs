//! What is in batches: every sample where the plan puts it, as a naive computation has it.

use proptest::prelude::*;

use super::*;
use crate::dataset::shard::Position;
use crate::dataset::transform::tests as transforms;

proptest! {
    #[test]
    fn dense_batches_equal_a_naive_computation(
        element in transforms::element(),
        transform in transforms::transform(),
        counts in prop::collection::vec(1..20_u32, 1..6),
        numbers in prop::collection::vec(any::<u8>(), 600),
        window in prop_oneof![Just(0_u64), Just(300), Just(u64::MAX)],
        shuffle: bool,
        batch in 1..12_u32,
    ) {
        let total: u32 = counts.iter().sum();
        let rows: Vec<Vec<f64>> =
            (0..total as usize).map(|row| numbers[row * 6..row * 6 + 6].iter().copied().map(f64::from).collect()).collect();
        let statistics = transforms::statistics(&rows, 2);
        let mut manifest = transforms::manifest(element, &[2, 3], transform, statistics.clone());
        let mut blocks = Written::default();
        let mut by_block = Vec::new();
        let mut rest = &rows[..];
        for count in counts {
            let (now, later) = rest.split_at(count as usize);
            let mut bytes: Vec<u8> = now.iter().flat_map(|row| (row[0] as i32).to_le_bytes()).collect();
            bytes.extend(now.iter().flat_map(|row| transforms::stored(element, row)));
            manifest.train.blocks.push(blocks.add(count, bytes));
            by_block.push(now);
            rest = later;
        }
        manifest.train.count = total.into();
        let plan = Plan { window, shuffle, ..Plan::default() };
        let shard = plan.shard(&manifest.train, 0, |_| Err(ShardError::NoClasses)).unwrap();
        let mut order = shard.positions();
        let options = Options::new(plan, size(batch));
        for batch in Assembler::new(source(&manifest, &Arc::new(blocks)), options, &context(usize::MAX)).unwrap() {
            let batch = batch.unwrap();
            let labels: Vec<i32> = batch.labels.as_ref().unwrap().to_vec().unwrap();
            for (found, label) in dense(&batch).chunks(6).zip(labels) {
                let Position { block, row } = order.next().unwrap();
                let row = &by_block[block as usize][row as usize];
                prop_assert_eq!(f64::from(label), row[0]);
                for (&found, want) in found.iter().zip(transforms::naive(transform, &statistics, row)) {
                    prop_assert!((f64::from(found) - want).abs() <= 2e-5 * (1.0 + want.abs()), "{found} is not {want}");
                }
            }
        }
        prop_assert_eq!(order.next(), None);
    }
}

/// A sparse data set of one block: sample `i` has the values 1, 2 … i % 4 in columns that start with `i`.
fn sparse(count: u32, transform: Transform) -> (Manifest, Written) {
    let (mut labels, mut starts, mut columns, mut values) = (Vec::new(), vec![0; 4], Vec::new(), Vec::new());
    for sample in 0..count {
        labels.extend((sample as f32).to_le_bytes());
        for index in 0..sample % 4 {
            columns.extend((sample + index).to_le_bytes());
            values.extend((index as f32 + 1.0).to_le_bytes());
        }
        starts.extend((values.len() as u32 / 4).to_le_bytes());
    }
    let mut blocks = Written::default();
    let block = blocks.add(count, [labels, starts, columns, values].concat());
    let manifest = Manifest {
        features: Features::Sparse { columns: count + 4 },
        labels: Some(Labels::Values { width: 1 }),
        transform,
        train: Split { count: count.into(), blocks: vec![block], classes: Vec::new() },
        ..Counted::new(&[]).manifest
    };
    (manifest, blocks)
}

#[test]
fn sparse_batches_hold_the_rows_of_their_samples() {
    let (manifest, blocks) = sparse(23, Transform::None);
    let options = Options::new(Plan::default(), size(5));
    let mut seen = Vec::new();
    for batch in Assembler::new(source(&manifest, &Arc::new(blocks)), options, &context(usize::MAX)).unwrap() {
        let batch = batch.unwrap();
        let Inputs::Sparse(csr) = &batch.features else { panic!("the features are dense") };
        let offsets: Vec<u32> = csr.offsets.to_vec().unwrap();
        let (columns, values): (Vec<u32>, Vec<f32>) = (csr.columns.to_vec().unwrap(), csr.values.to_vec().unwrap());
        for (row, label) in batch.labels.unwrap().to_vec::<f32>().unwrap().into_iter().enumerate() {
            let (sample, range) = (label as u32, offsets[row] as usize..offsets[row + 1] as usize);
            assert_eq!(columns[range.clone()], (0..sample % 4).map(|index| sample + index).collect::<Vec<u32>>());
            assert_eq!(values[range], (0..sample % 4).map(|index| index as f32 + 1.0).collect::<Vec<f32>>());
            seen.push(sample);
        }
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..23));
}

#[test]
fn sparse_batches_are_what_a_sparse_product_takes() {
    let (manifest, blocks) = sparse(8, Transform::Normalise);
    let context = context(usize::MAX);
    let options = Options::new(Plan { shuffle: false, ..Plan::default() }, size(8));
    let batch = Assembler::new(source(&manifest, &Arc::new(blocks)), options, &context).unwrap().next();
    let Inputs::Sparse(csr) = batch.unwrap().unwrap().features else { panic!("the features are dense") };
    let ones = context.full(&[csr.width], weft_gpu::DType::F32, 1.0).unwrap();
    let sums: Vec<f32> = csr.values.csr_matmul(&csr.offsets, &csr.columns, &ones).unwrap().to_vec().unwrap();
    let three = 6.0 / 14.0_f32.sqrt();
    for (sum, want) in sums.into_iter().zip([0.0, 1.0, 3.0 / 5.0_f32.sqrt(), three].into_iter().cycle()) {
        assert!((sum - want).abs() < 1e-6, "{sum} is not {want}");
    }
}

#[test]
fn a_sparse_row_outside_of_its_block_is_damage() {
    let (mut manifest, mut blocks) = sparse(8, Transform::None);
    let digest = manifest.train.blocks[0].digest;
    let mut bytes = blocks.blocks[&digest].to_vec();
    bytes[8 * 4 + 5 * 4..8 * 4 + 6 * 4].copy_from_slice(&u32::MAX.to_le_bytes());
    manifest.train.blocks[0] = blocks.add(8, bytes);
    let options = Options::new(Plan::default(), size(8));
    let batch = Assembler::new(source(&manifest, &Arc::new(blocks)), options, &context(usize::MAX)).unwrap().next();
    let error = batch.unwrap().unwrap_err();
    assert!(matches!(error.cause, Cause::Damaged { block: 0, .. }), "{error}");
}

#[test]
fn blocks_that_do_not_fit_their_samples_are_refused() {
    let mut counted = Counted::new(&[4, 4]);
    counted.manifest.features = Features::Dense { element: Element::F32, shape: vec![usize::MAX, 8] };
    counted.manifest.transform = Transform::Standardise;
    let options = Options::new(Plan::default(), size(8));
    let refused = Assembler::new(source(&counted.manifest, &Arc::new(counted.blocks)), options, &context(usize::MAX));
    let error = refused.err().unwrap();
    assert!(matches!(error.cause, Cause::Damaged { block: 0, .. }), "{error}");
}

fn counts(last: Last) -> Vec<usize> {
    let counted = Counted::new(&[50, 60]);
    let options = Options { last, ..Options::new(Plan::default(), size(32)) };
    let batches = Assembler::new(source(&counted.manifest, &Arc::new(counted.blocks)), options, &context(usize::MAX));
    batches.unwrap().map(|batch| samples(&batch.unwrap()).len()).collect()
}

#[test]
fn the_last_batch_is_smaller_when_kept() {
    assert_eq!(counts(Last::Keep), [32, 32, 32, 14]);
}

#[test]
fn the_last_batch_is_left_out_when_dropped() {
    assert_eq!(counts(Last::Drop), [32, 32, 32]);
}

#[test]
fn batches_go_on_where_they_were_stopped() {
    let counted = Counted::new(&[50, 60, 70]);
    let blocks = Arc::new(counted.blocks);
    let plan = Plan { window: 1500, stratified: true, shards: 2, ..Plan::default() };
    let options = Options { shard: 1, ..Options::new(plan, size(7)) };
    let all = |options| {
        let batches = Assembler::new(source(&counted.manifest, &blocks), options, &context(usize::MAX)).unwrap();
        batches.map(|batch| samples(&batch.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(all(Options { start: 5, ..options.clone() }), all(options)[5..]);
}

#[test]
fn stratified_shards_have_their_part_of_each_class() {
    let counted = Counted::new(&[30, 30, 30]);
    let blocks = Arc::new(counted.blocks);
    let plan = Plan { stratified: true, shards: 3, ..Plan::default() };
    for shard in 0..3 {
        let options = Options { shard, ..Options::new(plan.clone(), size(30)) };
        let batch = Assembler::new(source(&counted.manifest, &blocks), options, &context(usize::MAX)).unwrap().next();
        let mut labels: Vec<i32> = batch.unwrap().unwrap().labels.unwrap().to_vec().unwrap();
        labels.sort_unstable();
        assert_eq!(labels, [[0; 10], [1; 10], [2; 10]].concat());
    }
}
