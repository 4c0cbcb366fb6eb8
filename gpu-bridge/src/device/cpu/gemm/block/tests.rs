//! Every way of computing a block gives the same, but for how it rounds.

use super::*;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919 + seed * 104_729) % 2_003) as f32 / 1_001.0 - 1.0).collect()
}

type Kernel = unsafe fn(Operands, Target);

/// A block of `COUNT` rows by all the ways that this machine has.
fn compare<const COUNT: usize>() {
    let mut kernels: Vec<(&str, Kernel)> = vec![("plain", multiply_plain::<COUNT>)];
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            kernels.push(("avx2", multiply_avx2::<COUNT>));
        }
        if has_avx512() {
            kernels.push(("avx512", multiply_avx512::<COUNT>));
        }
    }
    for depth in [0, 1, 2, 7, 40] {
        for (columns, accumulate) in [(LANES, false), (LANES, true), (1, false), (11, true)] {
            let (a, b) = (numbers(COUNT * 64, 1), numbers(64 * LANES, 2));
            let blocks = kernels.iter().map(|(name, kernel)| {
                let mut c = numbers(COUNT * 20, 3);
                let from = Operands {
                    depth,
                    rows: a.as_ptr(),
                    row_stride: 64,
                    row_step: 1,
                    columns: b.as_ptr(),
                    column_step: LANES,
                };
                let to = Target { place: c.as_mut_ptr(), stride: 20, columns, scale: 0.5, accumulate };
                // SAFETY: the features were looked for; operands and target are as large as these sizes say.
                unsafe { kernel(from, to) };
                (name, c)
            });
            let blocks: Vec<_> = blocks.collect();
            for (name, block) in &blocks[1..] {
                for (index, (found, wanted)) in block.iter().zip(&blocks[0].1).enumerate() {
                    assert!(
                        (found - wanted).abs() <= 1e-5,
                        "{name}: {COUNT} rows, {columns} columns, depth {depth}: element {index} is {found}, not {wanted}"
                    );
                }
            }
        }
    }
}

#[test]
fn all_kernels_of_this_machine_agree() {
    compare::<1>();
    compare::<2>();
    compare::<3>();
    compare::<4>();
    compare::<5>();
    compare::<ROWS>();
}

/// Two blocks side by side, and each by itself.
fn compare_pair(count: usize) {
    for depth in [0, 1, 2, 7, 40] {
        for (columns, accumulate) in [(2 * LANES, false), (2 * LANES, true), (LANES + 1, false), (LANES + 11, true)] {
            let (a, b) = (numbers(count * 64, 1), numbers(2 * 64 * LANES, 2));
            let (low, high) = b.split_at(64 * LANES);
            let from = Operands {
                depth,
                rows: a.as_ptr(),
                row_stride: 64,
                row_step: 1,
                columns: low.as_ptr(),
                column_step: LANES,
            };
            let (mut pair, mut single) = (numbers(count * 40, 3), numbers(count * 40, 3));
            let to = Target { place: pair.as_mut_ptr(), stride: 40, columns, scale: 0.5, accumulate };
            // SAFETY: operands and target are as large as these sizes say.
            unsafe { multiply_pair(count, from, high.as_ptr(), to) };
            for (half, columns) in [LANES, columns - LANES].into_iter().enumerate() {
                let from = Operands { columns: [low, high][half].as_ptr(), ..from };
                let place = single[half * LANES..].as_mut_ptr();
                // SAFETY: as above.
                unsafe { multiply(count, from, Target { place, columns, ..to }) };
            }
            for (index, (found, wanted)) in pair.iter().zip(&single).enumerate() {
                assert_eq!(found, wanted, "{count} rows, {columns} columns, depth {depth}, element {index}");
            }
        }
    }
}

#[test]
fn a_pair_is_two_blocks() {
    (1..=ROWS).for_each(compare_pair);
}
