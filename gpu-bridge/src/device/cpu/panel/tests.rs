//! Every way of computing the inner loops gives the same as the naive one, but for how it rounds.

use super::*;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7919 + seed * 104_729) % 2_003) as f32 / 1_001.0 - 1.0).collect()
}

fn check(name: &str, depth: usize, found: &[f32], wanted: impl Fn(usize) -> f64) {
    for (index, &found) in found.iter().enumerate() {
        let wanted = wanted(index);
        assert!(
            (f64::from(found) - wanted).abs() <= 1e-4,
            "{name}, depth {depth}: element {index} is {found}, not {wanted}"
        );
    }
}

fn product(a: f32, b: f32) -> f64 {
    f64::from(a) * f64::from(b)
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
}

const DEPTHS: [usize; 6] = [0, 1, 2, 7, 16, 75];

#[test]
fn blocks_agree_with_naive_ones() {
    for depth in DEPTHS {
        let (rows, columns) = (numbers(depth * ROWS, 1), numbers(depth * LANES, 2));
        let wanted = |index: usize| {
            let (row, column) = (index / LANES, index % LANES);
            (0..depth).map(|step| product(rows[step * ROWS + row], columns[step * LANES + column])).sum()
        };
        let mut block: Block = [[f32::NAN; LANES]; ROWS];
        multiply(depth, &rows, &columns, &mut block);
        check("the best", depth, block.as_flattened(), wanted);
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // SAFETY: the features are there, and both panels have `depth` steps.
            unsafe { multiply_avx2(depth, rows.as_ptr(), columns.as_ptr(), &mut block) };
            check("avx2", depth, block.as_flattened(), wanted);
        }
    }
}

#[test]
fn blocks_at_offsets_agree_with_naive_ones() {
    for depth in DEPTHS {
        let (rows, source) = (numbers(depth * ROWS, 3), numbers(400, 4));
        let steps: Vec<u32> = (0..depth as u32).map(|step| step * 37 % 300).collect();
        let sources = [&source[3..], &source[50..]];
        let wanted = |index: usize| {
            let (block, row, column) = (index / LANES / ROWS, index / LANES % ROWS, index % LANES);
            (0..depth).map(|step| product(rows[step * ROWS + row], sources[block][steps[step] as usize + column])).sum()
        };
        let mut blocks: [Block; 2] = [[[f32::NAN; LANES]; ROWS]; 2];
        multiply_at(&rows, sources, Offsets::new(&steps), &mut blocks);
        check("the best", depth, blocks.as_flattened().as_flattened(), wanted);
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            for (source, block) in sources.into_iter().zip(&mut blocks) {
                // SAFETY: the features are there, the panel has as many steps as there are offsets, and all lie inside.
                unsafe { multiply_at_avx2(rows.as_ptr(), source.as_ptr(), &steps, block) };
            }
            check("avx2", depth, blocks.as_flattened().as_flattened(), wanted);
        }
    }
}

#[test]
fn outer_products_agree_with_naive_ones() {
    for depth in DEPTHS {
        let (source, columns) = (numbers(400, 5), numbers(depth * LANES, 6));
        let steps: Vec<u32> = (0..depth as u32).map(|step| step * 37 % 300).collect();
        let offsets: [usize; ROWS] = [0, 1, 2, 30, 31, 60];
        let wanted = |index: usize| {
            let (row, column) = (index / LANES, index % LANES);
            let sum =
                |step: usize| product(source[offsets[row] + steps[step] as usize], columns[step * LANES + column]);
            0.25 + (0..depth).map(sum).sum::<f64>()
        };
        let mut block: Block = [[0.25; LANES]; ROWS];
        add_outer(Offsets::new(&steps), &source, offsets, &columns, &mut block);
        check("the best", depth, block.as_flattened(), wanted);
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            let sources = offsets.map(|offset| source[offset..].as_ptr());
            let mut block: Block = [[0.25; LANES]; ROWS];
            // SAFETY: the features are there, the sources reach to the last pixel, and the columns are as many.
            unsafe { outer::add_outer_avx2(&steps, sources, columns.as_ptr(), &mut block) };
            check("avx2", depth, block.as_flattened(), wanted);
        }
    }
}

#[test]
fn products_with_runs_agree_with_naive_ones() {
    for depth in DEPTHS {
        let (source, columns) = (numbers(400, 8), numbers(depth * LANES, 9));
        let steps: Vec<u32> = (0..depth as u32).map(|step| step * 37 % 300).collect();
        let sources = [&source[..], &source[11..], &source[60..]];
        let wanted = |index: usize| {
            let (run, pixel, column) = (index / LANES / RUN, index / LANES % RUN, index % LANES);
            let at = |step: usize| steps[step] as usize + pixel;
            (0..depth).map(|step| product(sources[run][at(step)], columns[step * LANES + column])).sum()
        };
        let best = multiply_runs(&columns, sources, Offsets::new(&steps));
        check("the best", depth, best.as_flattened().as_flattened(), wanted);
        let plain = runs::plain(&columns, sources, &steps);
        check("plain", depth, plain.as_flattened().as_flattened(), wanted);
    }
}

#[test]
fn products_that_are_added_to_runs_agree_with_naive_ones() {
    let starts = [0, 20, 41, 90];
    for (depth, places) in DEPTHS.into_iter().flat_map(|depth| [(depth, 6), (depth, 4)]) {
        let (rows, source) = (numbers(depth * ROWS, 3), numbers(400, 4));
        let steps: Vec<u32> = (0..depth as u32).map(|step| step * 37 % 300).collect();
        let places: Vec<u32> = (0..places).map(|row| row * 130).collect();
        let mut wanted = vec![0.25_f64; 900];
        for (row, place) in places.iter().enumerate() {
            for (run, start) in starts.into_iter().enumerate() {
                for lane in 0..RUN {
                    let at = |step: usize| source[steps[step] as usize + run * RUN + lane];
                    let sum: f64 = (0..depth).map(|step| product(rows[step * ROWS + row], at(step))).sum();
                    wanted[start + *place as usize + lane] += sum;
                }
            }
        }
        let mut sums = vec![0.25; 900];
        add_runs(&rows, &source, Offsets::new(&steps), &places, starts, &mut sums);
        check("the best", depth, &sums, |index| wanted[index]);
    }
}

#[test]
fn dot_products_agree_with_naive_ones() {
    for depth in DEPTHS {
        let data = numbers(600, 7);
        let a = Segments { rows: [&data[1..], &data[40..], &data[7..]], step: 90 };
        let b = Segments { rows: [&data[200..], &data[3..], &data[100..], &data[9..]], step: 110 };
        let wanted = |index: usize| {
            let (row, column) = (a.rows[index / DOT_COLUMNS], b.rows[index % DOT_COLUMNS]);
            let piece = |segment: usize| {
                (0..depth).map(|at| product(row[segment * a.step + at], column[segment * b.step + at])).sum::<f64>()
            };
            (0..3).map(piece).sum()
        };
        check("the best", depth, dots(3, depth, a, b).as_flattened(), wanted);
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            let mut sums: DotSums = [[[0.0; LANES]; DOT_COLUMNS]; DOT_ROWS];
            // SAFETY: the features are there, and all rows have all segments.
            unsafe { add_dots_avx2(3, depth, a, b, &mut sums) };
            check("avx2", depth, total(&sums).as_flattened(), wanted);
        }
    }
}
