//! Rows by index: gathered, added up, and the index itself as rows.

use weft_gpu::DType;
use weft_gpu::op::{GatherRows, OneHot, ScatterAddRows};

use super::varied;
use crate::array::Array;
use crate::case::{Case, EXACT, Refusal, f32, of, within};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // The sizes of one row, how many there are, and the shape of the index.
    let sizes: [(&[usize], usize, &[usize]); 10] = [
        (&[], 4, &[]),
        (&[3], 5, &[]),
        (&[3], 5, &[7]),
        (&[3], 5, &[0]),
        (&[0], 5, &[4]),
        (&[], 3, &[9]),
        (&[2, 3], 4, &[3, 2]),
        (&[1], 1, &[1]),
        (&[33], 300, &[70, 5]),
        (&[40_000], 3, &[5]),
    ];
    for (row, count, index_shape) in sizes {
        for dtype in [DType::U8, DType::I32, DType::U32] {
            let index = Array::integers(index_shape, dtype, 11, count.min(250));
            let table = Array::noise(&[&[count], row].concat(), 12, -1.0, 1.0);
            let small = table.data.len() < 200;
            let gather = Case::new(GatherRows, &[table, index.clone()], EXACT, |x| vec![gathered(&x[0], &x[1])]);
            cases.push(if small { gather.differentiated(&[0]) } else { gather });
            let rows = Array::noise(&[index_shape, row].concat(), 13, -1.0, 1.0);
            let small = rows.data.len() < 200;
            let scatter = Case::new(ScatterAddRows { count }, &[rows, index.clone()], within(1e-5, 1e-6), move |x| {
                vec![scattered(&x[0], &x[1], count)]
            });
            cases.push(if small { scatter.differentiated(&[0]) } else { scatter });
            cases.push(Case::new(OneHot { classes: count }, &[index], EXACT, move |x| vec![one_hot(&x[0], count)]));
        }
    }
    for dtype in DType::ALL {
        let index = Array::integers(&[5], DType::U8, 14, 6);
        cases.push(Case::new(GatherRows, &[varied(&[6, 3], dtype), index], EXACT, |x| vec![gathered(&x[0], &x[1])]));
    }
    // A row that is not finite touches its own sum only.
    let rows = Array::f32(&[3, 2], vec![1.0, 2.0, f64::NAN, f64::INFINITY, 3.0, 4.0]);
    let index = Array::new(&[3], DType::I32, vec![2.0, 0.0, 2.0]);
    cases.push(Case::new(ScatterAddRows { count: 4 }, &[rows, index], EXACT, |x| vec![scattered(&x[0], &x[1], 4)]));
    cases
}

fn gathered(table: &Array, index: &Array) -> Array {
    let width: usize = table.shape[1..].iter().product();
    let data = index.data.iter().flat_map(|&row| &table.data[row as usize * width..][..width]).copied().collect();
    Array::new(&[&index.shape, &table.shape[1..]].concat(), table.dtype, data)
}

fn scattered(rows: &Array, index: &Array, count: usize) -> Array {
    let row = &rows.shape[index.rank()..];
    let width: usize = row.iter().product();
    let mut data = vec![0.0; count * width];
    for (at, &to) in index.data.iter().enumerate() {
        for column in 0..width {
            data[to as usize * width + column] += rows.data[at * width + column];
        }
    }
    Array::f32(&[&[count], row].concat(), data)
}

fn one_hot(index: &Array, classes: usize) -> Array {
    let hot = |&class: &f64| (0..classes).map(move |at| if at as f64 == class { 1.0 } else { 0.0 });
    Array::f32(&[&index.shape[..], &[classes]].concat(), index.data.iter().flat_map(hot).collect())
}

pub fn refusals() -> Vec<Refusal> {
    let u8s = |sizes: &[usize]| of(sizes, DType::U8);
    vec![
        Refusal::new(GatherRows, &[f32(&[2, 3])], "1 inputs, it takes 2"),
        Refusal::new(GatherRows, &[f32(&[]), u8s(&[3])], "input 0 is a scalar"),
        Refusal::new(GatherRows, &[f32(&[2, 3]), f32(&[3])], "input 1 is f32, not an index type"),
        Refusal::new(GatherRows, &[f32(&[0, 3]), u8s(&[3])], "row 0 is out of range, there are 0"),
        Refusal::new(GatherRows, &[f32(&[1; 8]), u8s(&[1, 1])], "make 9 axes"),
        Refusal::new(ScatterAddRows { count: 2 }, &[u8s(&[2, 3]), u8s(&[2])], "input 0 is u8, not f32"),
        Refusal::new(ScatterAddRows { count: 2 }, &[f32(&[2, 3]), f32(&[2])], "input 1 is f32, not an index type"),
        Refusal::new(ScatterAddRows { count: 2 }, &[f32(&[2, 3]), u8s(&[3])], "not one index per row: [2, 3] and [3]"),
        Refusal::new(ScatterAddRows { count: 2 }, &[f32(&[2]), u8s(&[2, 1])], "not one index per row: [2] and [2, 1]"),
        Refusal::new(ScatterAddRows { count: usize::MAX }, &[f32(&[2, 3]), u8s(&[2])], "too large"),
        Refusal::new(ScatterAddRows { count: 0 }, &[f32(&[2, 3]), u8s(&[2])], "row 0 is out of range, there are 0"),
        Refusal::new(ScatterAddRows { count: 5 }, &[f32(&[1; 8]), u8s(&[])], "make 9 axes"),
        Refusal::new(OneHot { classes: 0 }, &[u8s(&[2])], "0 classes"),
        Refusal::new(OneHot { classes: 3 }, &[f32(&[2])], "input 0 is f32, not an index type"),
        Refusal::new(OneHot { classes: usize::MAX }, &[u8s(&[2])], "too large"),
        Refusal::new(OneHot { classes: 1 }, &[], "0 inputs, it takes 1"),
    ]
}

#[cfg(test)]
mod on_the_cpu {
    use weft_gpu::Error;

    use super::super::context;

    #[test]
    fn the_first_index_that_is_out_of_range_is_named() {
        let context = context();
        let mut index = vec![1_i32; 5000];
        index[1234] = -1;
        index[4321] = 7;
        let index = context.tensor(&[5000], &index).unwrap();
        let table = context.zeros(&[7, 64]).unwrap();
        let out_of_range = |op| Err(Error::IndexOutOfRange { op, what: "row", index: -1, count: 7 });
        for threads in [1, 3] {
            context.set_threads(threads);
            assert_eq!(table.gather_rows(&index).map(drop), out_of_range("gather-rows"));
            let rows = context.zeros(&[5000, 64]).unwrap();
            assert_eq!(rows.scatter_add_rows(&index, 7).map(drop), out_of_range("scatter-add-rows"));
            let class = Err(Error::IndexOutOfRange { op: "one-hot", what: "class", index: -1, count: 7 });
            assert_eq!(index.one_hot(7).map(drop), class);
        }
    }
}
