//! Sparse rows (CSR), and the two steps of k-means.

use std::sync::Arc;

use weft_gpu::device::Device;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::{CsrMatMul, CsrTransposedMatMul, CsrValuesGradient, KMeansAccumulate, KMeansAssign, Op};
use weft_gpu::{Context, Crew, DType, Error, Limits, Tensor};

use crate::As;
use crate::array::{Array, unit};
use crate::case::{Case, EXACT, Refusal, f32, of, within};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Rows, columns, chance of a stored value, width of the dense operand (none: a vector).
    for (rows, columns, density, wide) in [
        (0, 3, 0.5, None),
        (3, 0, 0.0, None),
        (1, 1, 1.0, None),
        (5, 7, 0.0, Some(3)),
        (5, 7, 0.5, None),
        (5, 7, 0.5, Some(0)),
        (5, 7, 0.5, Some(1)),
        (9, 4, 0.6, Some(17)),
        (700, 50, 0.3, Some(40)),
        (3000, 40, 0.3, None),
        (3000, 40, 0.3, Some(3)),
        (2000, 3000, 0.01, None),
    ] {
        let matrix = Sparse::noise(rows, columns, density);
        cases.extend(products(&matrix, wide, false));
    }
    for wide in [None, Some(3)] {
        cases.extend(products(&Sparse::noise(4, 5, 0.5), wide, true));
    }
    // A row that has a column twice, and stored values that are not finite.
    let twice = Sparse { rows: 2, columns: 3, offsets: vec![0, 3, 4], places: vec![1, 1, 0, 2], values: vec![1.0; 4] };
    cases.extend(products(&twice, None, true));
    let infinite = Sparse { values: vec![1.0, f64::INFINITY, f64::NAN, f64::INFINITY], ..twice };
    cases.extend(products(&infinite, Some(2), false));
    cases.extend(kmeans());
    cases
}

/// All three operations on one matrix.
fn products(matrix: &Sparse, wide: Option<usize>, differentiated: bool) -> Vec<Case> {
    let shape = |rows| if let Some(wide) = wide { vec![rows, wide] } else { vec![rows] };
    let (x, r) = (Array::noise(&shape(matrix.columns), 5, -1.0, 1.0), Array::noise(&shape(matrix.rows), 6, -1.0, 1.0));
    let [offsets, places, values] = matrix.arrays();
    let close = within(2e-6, 1e-6);
    let columns = matrix.columns;
    let forward = Case::new(CsrMatMul, &[offsets.clone(), places.clone(), values.clone(), x.clone()], close, |x| {
        let rows = x[0].data.len() - 1;
        product(&x[0], &x[1], &x[2], &x[3], rows, |row, column| (row, column))
    });
    let inputs = [offsets.clone(), places.clone(), values, r.clone()];
    // Sums over all rows.
    let sums = within(2e-6 * (1.0 + matrix.rows as f64 / 100.0), 1e-6);
    let transposed = Case::new(CsrTransposedMatMul { columns }, &inputs, sums, move |x| {
        product(&x[0], &x[1], &x[2], &x[3], columns, |row, column| (column, row))
    });
    let gradient = Case::new(CsrValuesGradient, &[offsets, places, x, r], close, |x| {
        let wide = x[2].shape.get(1).copied().unwrap_or(1);
        let stored = stored(&x[0], &x[1]);
        let dot = |row: usize, column: usize| {
            (0..wide).map(|i| x[2].data[column * wide + i] * x[3].data[row * wide + i]).sum::<f64>()
        };
        vec![Array::f32(&x[1].shape, stored.map(|(row, column)| dot(row, column)).collect())]
    });
    if differentiated {
        return vec![forward.differentiated(&[2, 3]), transposed.differentiated(&[2, 3]), gradient];
    }
    vec![forward, transposed, gradient]
}

/// The row and column of each stored value.
fn stored(offsets: &Array, places: &Array) -> impl Iterator<Item = (usize, usize)> {
    let (offsets, places) = (offsets.data.clone(), places.data.clone());
    (0..offsets.len() - 1).flat_map(move |row| {
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        places[range].iter().map(|&column| (row, column as usize)).collect::<Vec<_>>()
    })
}

/// Adds each stored value times row `from` of the dense operand to row `into` of the result.
fn product(
    offsets: &Array,
    places: &Array,
    values: &Array,
    dense: &Array,
    rows: usize,
    into_from: impl Fn(usize, usize) -> (usize, usize),
) -> Vec<Array> {
    let wide = dense.shape.get(1).copied().unwrap_or(1);
    let mut shape = dense.shape.clone();
    shape[0] = rows;
    let mut result = Array::build(&shape, DType::F32, |_| 0.0);
    for ((row, column), value) in stored(offsets, places).zip(&values.data) {
        let (into, from) = into_from(row, column);
        for i in 0..wide {
            result.data[into * wide + i] += value * dense.data[from * wide + i];
        }
    }
    vec![result]
}

struct Sparse {
    rows: usize,
    columns: usize,
    offsets: Vec<usize>,
    places: Vec<usize>,
    values: Vec<f64>,
}

impl Sparse {
    fn noise(rows: usize, columns: usize, density: f64) -> Self {
        let (mut offsets, mut places) = (vec![0], Vec::new());
        for row in 0..rows {
            // Some rows are empty, some are full.
            let density = density * 2.0 * unit(1, row);
            places.extend((0..columns).filter(|column| unit(2, row * columns + column) < density));
            offsets.push(places.len());
        }
        let values = Array::noise(&[places.len()], 3, -1.0, 1.0).data;
        Self { rows, columns, offsets, places, values }
    }

    fn arrays(&self) -> [Array; 3] {
        let integers =
            |data: &[usize]| Array::new(&[data.len()], DType::U32, data.iter().map(|&index| index as f64).collect());
        [integers(&self.offsets), integers(&self.places), Array::f32(&[self.values.len()], self.values.clone())]
    }
}

fn kmeans() -> Vec<Case> {
    let mut cases = Vec::new();
    for (points, dimensions, clusters) in [
        (0, 3, 2),
        (1, 1, 1),
        (3, 0, 2),
        (5, 2, 3),
        (33, 7, 8),
        (70, 3, 9),
        (1000, 65, 20),
        (5000, 4, 17),
        (300, 784, 10),
        (40_000, 10, 10),
    ] {
        let x = Array::noise(&[points, dimensions], 1, -1.0, 1.0);
        let centroids = Array::noise(&[clusters, dimensions], 2, -1.0, 1.0);
        cases.push(Case::new(KMeansAssign, &[x.clone(), centroids], within(1e-7, 1e-6), |x| nearest(&x[0], &x[1])));
        let assignment = Array::integers(&[points], DType::U32, 3, clusters);
        let op = KMeansAccumulate { clusters };
        cases.push(Case::new(op, &[x, assignment], within(0.0, 1.2e-7), move |x| sums(&x[0], &x[1], clusters)));
    }
    // Equally near: the first, also across groups and lanes. NaN is never nearest, unless there is nothing else.
    let line = |data: &[f64]| Array::f32(&[data.len(), 1], data.to_vec());
    let mut far = vec![100.0; 21];
    (far[5], far[8], far[12]) = (1.0, -1.0, 1.0);
    let nan = [f64::NAN, 3.0, f64::INFINITY];
    for (points, centroids, want, distances) in [
        (vec![0.0, 0.6, -0.6], far, vec![5.0, 5.0, 8.0], vec![1.0, 0.4_f32.powi(2) as f64, 0.4_f32.powi(2) as f64]),
        (vec![2.0, f64::NAN, f64::INFINITY], nan.to_vec(), vec![1.0, 0.0, 1.0], vec![1.0, f64::NAN, f64::INFINITY]),
        (vec![2.0], vec![f64::NAN], vec![0.0], vec![f64::NAN]),
    ] {
        cases.push(Case::new(KMeansAssign, &[line(&points), line(&centroids)], within(0.0, 3e-7), move |_| {
            vec![Array::new(&[want.len()], DType::U32, want.clone()), Array::f32(&[want.len()], distances.clone())]
        }));
    }
    let points = line(&[1.0, f64::NAN, f64::INFINITY, 2.0, f64::NEG_INFINITY]);
    let assignment = Array::new(&[5], DType::U32, vec![0.0, 1.0, 2.0, 0.0, 2.0]);
    cases.push(Case::new(KMeansAccumulate { clusters: 4 }, &[points, assignment], EXACT, |_| {
        vec![line4(&[3.0, f64::NAN, f64::NAN, 0.0]), Array::new(&[4], DType::U32, vec![2.0, 1.0, 2.0, 0.0])]
    }));
    cases
}

fn line4(data: &[f64; 4]) -> Array {
    Array::f32(&[4, 1], data.to_vec())
}

fn nearest(points: &Array, centroids: &Array) -> Vec<Array> {
    let dimensions = points.shape[1];
    let distance = |point: usize, centroid: usize| {
        (0..dimensions).map(|i| (points.at(&[point, i]) - centroids.at(&[centroid, i])).powi(2)).sum::<f64>()
    };
    let best: Vec<(usize, f64)> = (0..points.shape[0])
        .map(|point| {
            let mut best = (0, distance(point, 0));
            for centroid in 1..centroids.shape[0] {
                let found = distance(point, centroid);
                if found < best.1 {
                    best = (centroid, found);
                }
            }
            best
        })
        .collect();
    let count = [best.len()];
    vec![
        Array::new(&count, DType::U32, best.iter().map(|best| best.0 as f64).collect()),
        Array::f32(&count, best.iter().map(|best| best.1).collect()),
    ]
}

fn sums(points: &Array, assignment: &Array, clusters: usize) -> Vec<Array> {
    let dimensions = points.shape[1];
    let mut sums = Array::build(&[clusters, dimensions], DType::F32, |_| 0.0);
    let mut counts = Array::build(&[clusters], DType::U32, |_| 0.0);
    for (point, &cluster) in assignment.data.iter().enumerate() {
        counts.data[cluster as usize] += 1.0;
        for i in 0..dimensions {
            sums.data[cluster as usize * dimensions + i] += points.at(&[point, i]);
        }
    }
    vec![sums, counts]
}

pub fn refusals() -> Vec<Refusal> {
    let u32 = |size: usize| of(&[size], DType::U32);
    let mut refusals = Vec::new();
    let transposed = CsrTransposedMatMul { columns: 3 };
    for op in [Op::from(CsrMatMul), Op::from(transposed)] {
        let refuse = |inputs: &[_], says| Refusal::new(op.clone(), inputs, says);
        refusals.extend([
            refuse(&[u32(3), u32(4), f32(&[4])], "3 inputs, it takes 4"),
            refuse(&[of(&[3], DType::I32), u32(4), f32(&[4]), f32(&[2])], "input 0 is i32, not u32"),
            refuse(&[u32(3), of(&[4], DType::U8), f32(&[4]), f32(&[2])], "input 1 is u8, not u32"),
            refuse(&[u32(3), u32(4), of(&[4], DType::F16), f32(&[2])], "input 2 is f16, not f32"),
            refuse(&[u32(3), u32(4), f32(&[4]), of(&[2], DType::U32)], "input 3 is u32, not f32"),
            refuse(&[of(&[3, 1], DType::U32), u32(4), f32(&[4]), f32(&[2])], "input 0 is [3, 1], it must have 1 axes"),
            refuse(&[u32(0), u32(4), f32(&[4]), f32(&[2])], "the offsets, is empty"),
            refuse(&[u32(3), u32(4), f32(&[5]), f32(&[2])], "input 2 is [5], not [4]"),
            refuse(&[u32(3), u32(4), f32(&[4]), f32(&[])], "input 3 is [], it must have one or two axes"),
            refuse(&[u32(3), u32(4), f32(&[4]), f32(&[2, 1, 1])], "it must have one or two axes"),
            // The tensors of these are all zeros.
            refuse(&[u32(3), u32(4), f32(&[4]), f32(&[2])], "the last offset is 0, there are 4 stored values"),
        ]);
    }
    let huge = CsrTransposedMatMul { columns: 1 << 50 };
    let accumulate = |clusters| KMeansAccumulate { clusters };
    refusals.extend([
        Refusal::new(transposed, &[u32(3), u32(4), f32(&[4]), f32(&[4])], "input 3 is [4], there are 2 sparse rows"),
        Refusal::new(huge, &[u32(3), u32(4), f32(&[4]), f32(&[2])], "too large"),
        Refusal::new(CsrValuesGradient, &[u32(3), u32(4), f32(&[5])], "3 inputs, it takes 4"),
        Refusal::new(
            CsrValuesGradient,
            &[u32(3), u32(4), f32(&[5, 2]), f32(&[2, 3])],
            "past their rows: [5, 2] and [2, 3]",
        ),
        Refusal::new(CsrValuesGradient, &[u32(3), u32(4), f32(&[5, 2]), f32(&[2])], "past their rows: [5, 2] and [2]"),
        Refusal::new(CsrValuesGradient, &[u32(3), u32(4), f32(&[5]), f32(&[5])], "there are 2 sparse rows"),
        Refusal::new(CsrValuesGradient, &[u32(3), u32(4), of(&[5], DType::U8), f32(&[2])], "input 2 is u8, not f32"),
        Refusal::new(CsrValuesGradient, &[u32(3), u32(4), f32(&[5]), f32(&[2])], "the last offset is 0"),
        Refusal::new(KMeansAssign, &[f32(&[2, 3])], "1 inputs, it takes 2"),
        Refusal::new(KMeansAssign, &[f32(&[2, 3]), f32(&[2, 4])], "dimensions differ: [2, 3] and [2, 4]"),
        Refusal::new(KMeansAssign, &[f32(&[2, 3]), f32(&[0, 3])], "input 1 is [0, 3]: no centroids"),
        Refusal::new(KMeansAssign, &[f32(&[2]), f32(&[2, 4])], "input 0 is [2], it must have 2 axes"),
        Refusal::new(KMeansAssign, &[f32(&[2, 4]), of(&[2, 4], DType::F16)], "input 1 is f16, not f32"),
        Refusal::new(accumulate(2), &[f32(&[2, 3])], "1 inputs, it takes 2"),
        Refusal::new(accumulate(2), &[f32(&[2, 3]), u32(3)], "input 1 is [3], not [2]"),
        Refusal::new(accumulate(2), &[f32(&[2, 3]), f32(&[2])], "input 1 is f32, not u32"),
        Refusal::new(accumulate(2), &[f32(&[2]), u32(2)], "input 0 is [2], it must have 2 axes"),
        Refusal::new(accumulate(0), &[f32(&[2, 3]), u32(2)], "there must be at least one cluster"),
        Refusal::new(accumulate(1 << 39), &[f32(&[2, 3]), u32(2)], "too large"),
    ]);
    refusals
}

fn context() -> Context {
    on(Arc::new(Cpu::new()))
}

fn on(device: Arc<dyn Device>) -> Context {
    Context::new(device, Arc::new(Crew::new(2)), Limits::default())
}

/// The same on a GPU, by the kernels for either class of them.
fn gpu_contexts() -> [Context; 2] {
    [As::Itself, As::Hardware].map(|kind| on(crate::gpu(kind)))
}

/// What each of the three products says of these offsets and columns, for three rows and four columns.
fn hostile(context: &Context, offsets: &[u32], columns: &[u32]) -> Vec<Error> {
    let offsets = context.tensor(&[offsets.len()], offsets).unwrap();
    let columns = context.tensor(&[columns.len()], columns).unwrap();
    let values = context.zeros(&columns.shape()).unwrap();
    let mut errors = Vec::new();
    for wide in [1, 2, 20] {
        let (x, r) = (context.zeros(&[4, wide]).unwrap(), context.zeros(&[3, wide]).unwrap());
        let run = |op: Op, inputs: [&Tensor; 4]| {
            // What only shows while it runs may be told by the next read.
            context.run(op, &inputs).and_then(|outputs| outputs[0].read(0, &mut [])).unwrap_err()
        };
        errors.push(run(CsrMatMul.into(), [&offsets, &columns, &values, &x]));
        errors.push(run(CsrTransposedMatMul { columns: 4 }.into(), [&offsets, &columns, &values, &r]));
        errors.push(run(CsrValuesGradient.into(), [&offsets, &columns, &x, &r]));
    }
    errors
}

#[test]
fn offsets_that_are_no_rows_are_refused() {
    for (offsets, says) in [
        ([1, 2, 3, 4], "the first offset is 1, not 0"),
        ([0, 2, 1, 4], "the offsets fall at row 1"),
        ([0, u32::MAX, 1, 4], "the offsets fall at row 1"),
        ([0, 5, 5, 4], "the offsets fall at row 2"),
        ([0, 1, 2, 3], "the last offset is 3, there are 4 stored values"),
        ([0, 1, 2, u32::MAX], "there are 4 stored values"),
    ] {
        let [software, hardware] = gpu_contexts();
        for context in [context(), software, hardware] {
            for error in hostile(&context, &offsets, &[0, 1, 2, 3]) {
                assert!(error.to_string().contains(says), "{offsets:?}: {error}");
            }
        }
    }
}

#[test]
fn columns_that_are_not_there_are_refused_and_the_first_is_named() {
    for columns in [[0, 4, 9, 0], [3, 2, 4, u32::MAX]] {
        for error in hostile(&context(), &[0, 2, 2, 4], &columns) {
            assert!(matches!(error, Error::IndexOutOfRange { what: "column", index: 4, count: 4, .. }), "{error}");
        }
        // Which of several a GPU finds first is chance.
        for context in gpu_contexts() {
            for error in hostile(&context, &[0, 2, 2, 4], &columns) {
                assert!(matches!(error, Error::IndexOutOfRange { what: "column", count: 4, .. }), "{error}");
            }
        }
    }
}

#[test]
fn rows_that_overlap_are_refused_before_they_are_multiplied() {
    // Half of these rows have all stored values: that would be more work than a GPU gets done before it is reset.
    let stored = 1 << 18;
    let offsets: Vec<u32> = (0..=stored + 1).map(|row| if row % 2 == 0 { 0 } else { stored }).collect();
    for context in gpu_contexts() {
        let offsets = context.tensor(&[offsets.len()], &offsets).unwrap();
        let columns = context.full(&[stored as usize], DType::U32, 0.0).unwrap();
        let (values, x) = (context.zeros(&columns.shape()).unwrap(), context.zeros(&[4]).unwrap());
        let product = values.csr_matmul(&offsets, &columns, &x).unwrap();
        let error = product.read(0, &mut []).unwrap_err();
        assert!(error.to_string().contains("the offsets fall at row"), "{error}");
    }
}

#[test]
fn a_bad_column_is_named_whichever_thread_finds_it() {
    let context = context();
    let rows = 20_000;
    let offsets: Vec<u32> = (0..=rows).map(|row| row * 4).collect();
    let mut columns = vec![1_u32; rows as usize * 4];
    (columns[30_001], columns[60_000]) = (7, 8);
    let offsets = context.tensor(&[offsets.len()], &offsets).unwrap();
    let columns = context.tensor(&[columns.len()], &columns).unwrap();
    let values = context.zeros(&columns.shape()).unwrap();
    let (x, r) = (context.zeros(&[4]).unwrap(), context.zeros(&[rows as usize]).unwrap());
    for _ in 0..20 {
        for error in [
            values.csr_matmul(&offsets, &columns, &x).unwrap_err(),
            values.csr_transposed_matmul(&offsets, &columns, &r, 4).unwrap_err(),
        ] {
            assert!(matches!(error, Error::IndexOutOfRange { index: 7, .. }), "{error}");
        }
    }
}

#[test]
fn clusters_that_are_not_there_are_refused() {
    let context = context();
    let points = context.zeros(&[3, 2]).unwrap();
    let assignment = context.tensor(&[3], &[0, u32::MAX, 2]).unwrap();
    let error = points.kmeans_accumulate(&assignment, 2).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { what: "cluster", index: 4_294_967_295, count: 2, .. }), "{error}");
}
