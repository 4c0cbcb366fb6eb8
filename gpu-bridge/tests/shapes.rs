//! Shapes and layouts: chains of views against a naive computation, and sizes of any kind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use proptest::prelude::*;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::{
    Concat, Expand, GatherRows, Iota, Meta, OneHot, Op, Pad, Permute, Resampling, Reshape, Resize, ResizeGradient,
    ScatterAddRows, Slice, TopK, TopKGradient,
};
use weft_gpu::{Axes, Context, Crew, DType, Layout, Limits, MAX_ELEMENTS, MAX_RANK, Shape, Tensor};

/// An array with its elements row after row.
#[derive(Clone, Debug, PartialEq)]
struct Naive {
    shape: Vec<usize>,
    data: Vec<u32>,
}

impl Naive {
    fn count(shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), data: (0..shape.iter().product::<usize>() as u32).collect() }
    }

    /// The array of another shape whose element at some coordinates is this one's at others.
    fn rearranged(&self, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let data = (0..shape.iter().product())
            .map(|mut index: usize| {
                let mut coordinates = vec![0; shape.len()];
                for (coordinate, size) in coordinates.iter_mut().zip(shape).rev() {
                    *coordinate = index % size;
                    index /= size;
                }
                let place = from(&coordinates).iter().zip(&self.shape).fold(0, |place, (c, size)| place * size + c);
                self.data[place]
            })
            .collect();
        Self { shape: shape.to_vec(), data }
    }
}

/// One view of a tensor, made to fit its shape from a few random bytes.
#[derive(Clone, Debug)]
enum Step {
    Permute(Vec<u8>),
    Slice(Vec<(u8, u8, u8)>),
    Expand(Vec<u8>),
    Reshape(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        prop::collection::vec(any::<u8>(), MAX_RANK).prop_map(Step::Permute),
        prop::collection::vec(any::<(u8, u8, u8)>(), MAX_RANK).prop_map(Step::Slice),
        prop::collection::vec(any::<u8>(), 0..3).prop_map(Step::Expand),
        prop::collection::vec(any::<u8>(), MAX_RANK).prop_map(Step::Reshape),
    ];
    prop::collection::vec(step, 0..6)
}

fn small_shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![4 => 1_usize..5, 1 => Just(1), 1 => Just(6)], 0..5)
        .prop_flat_map(|shape| {
            let rank = shape.len();
            (Just(shape), prop::option::weighted(0.1, 0..rank.max(1)))
        })
        .prop_map(|(mut shape, empty)| {
            if let Some(size) = empty.and_then(|axis| shape.get_mut(axis)) {
                *size = 0;
            }
            shape
        })
}

impl Step {
    /// The view of a tensor, and the same of a naive array.
    fn apply(&self, tensor: &Tensor, naive: &Naive) -> (Tensor, Naive) {
        let sizes = &naive.shape;
        match self {
            Self::Permute(keys) => {
                let mut order: Vec<usize> = (0..sizes.len()).collect();
                order.sort_by_key(|&axis| keys[axis]);
                let shape: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
                let expected = naive.rearranged(&shape, |c| {
                    let mut from = vec![0; c.len()];
                    order.iter().zip(c).for_each(|(&axis, &c)| from[axis] = c);
                    from
                });
                (tensor.permute(&order).unwrap(), expected)
            }
            Self::Slice(bytes) => {
                let (mut starts, mut counts, mut strides) = (vec![], vec![], vec![]);
                for (&size, &(start, count, step)) in sizes.iter().zip(bytes) {
                    let start = start as usize % (size + 1);
                    let step = step as usize % 3 + 1;
                    starts.push(start);
                    strides.push(step);
                    // Rarely nothing, or all chains would end empty.
                    let most = (size - start).div_ceil(step);
                    counts.push(if count == 255 { 0 } else { most - (count as usize % 4).min(most.saturating_sub(1)) });
                }
                let expected = naive
                    .rearranged(&counts, |c| (0..c.len()).map(|axis| starts[axis] + c[axis] * strides[axis]).collect());
                (tensor.slice(&starts, &counts, &strides).unwrap(), expected)
            }
            Self::Expand(new) => {
                let mut shape: Vec<usize> = new.iter().map(|&size| size as usize % 3 + 1).collect();
                shape.truncate(MAX_RANK - sizes.len());
                if naive.data.len() * shape.iter().product::<usize>() > 3000 {
                    shape.fill(1);
                }
                let missing = shape.len();
                shape.extend(sizes.iter().map(|&size| if size == 1 && naive.data.len() < 1000 { 2 } else { size }));
                let expected = naive.rearranged(&shape, |c| {
                    c[missing..].iter().zip(sizes).map(|(&c, &size)| if size == 1 { 0 } else { c }).collect()
                });
                (tensor.expand(&shape).unwrap(), expected)
            }
            Self::Reshape(bytes) => {
                let shape = refactored(sizes, bytes);
                (tensor.reshape(&shape).unwrap(), Naive { shape, data: naive.data.clone() })
            }
        }
    }
}

/// Sizes with the same product: axes joined and split, and some of size 1 put between.
fn refactored(sizes: &[usize], bytes: &[u8]) -> Vec<usize> {
    let mut shape: Vec<usize> = Vec::new();
    for (&size, &byte) in sizes.iter().zip(bytes) {
        match byte % 4 {
            0 if !shape.is_empty() => {
                let last = shape.len() - 1;
                shape[last] *= size;
            }
            1 if size % 2 == 0 && size > 0 => shape.extend([size / 2, 2]),
            2 => shape.extend([1, size]),
            _ => shape.push(size),
        }
    }
    while shape.len() > MAX_RANK {
        let last = shape.pop().unwrap();
        let end = shape.len() - 1;
        shape[end] *= last;
    }
    shape
}

fn context() -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default())
}

/// Sizes of any kind: small ones, ones at the limits, and any at all.
fn any_size() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..4, Just(MAX_ELEMENTS), Just(usize::MAX), Just(usize::MAX / 2 + 1), any::<usize>()]
}

fn any_sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any_size(), 0..MAX_RANK + 2)
}

fn valid_shape() -> impl Strategy<Value = Shape> {
    let sizes = prop_oneof![
        prop::collection::vec(0_usize..4, 0..=MAX_RANK),
        prop::collection::vec(any_size(), 0..3),
        prop::collection::vec(prop_oneof![Just(1), Just(1_usize << 20), Just(1 << 40)], 0..4),
    ];
    sizes.prop_map(|sizes| Shape::new(&sizes).unwrap_or(Shape::SCALAR))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_chain_of_views_is_what_the_naive_computation_says(shape in small_shape(), steps in steps()) {
        let context = context();
        let mut naive = Naive::count(&shape);
        let mut tensor = context.tensor(&shape, &naive.data).unwrap();
        for step in steps {
            (tensor, naive) = step.apply(&tensor, &naive);
            prop_assert_eq!(&*tensor.shape(), &naive.shape[..]);
            prop_assert_eq!(&tensor.to_vec::<u32>().unwrap(), &naive.data, "after {:?}", step);
        }
    }

    #[test]
    fn a_layout_that_says_it_is_contiguous_is(shape in small_shape(), steps in steps()) {
        let context = context();
        let mut naive = Naive::count(&shape);
        let mut tensor = context.tensor(&shape, &naive.data).unwrap();
        for step in steps {
            (tensor, naive) = step.apply(&tensor, &naive);
            let layout = tensor.layout();
            if layout.is_contiguous() {
                prop_assert_eq!(layout.end() - layout.offset, naive.data.len());
            }
        }
    }

    #[test]
    fn broadcasting_is_commutative_and_associative(a in valid_shape(), b in valid_shape(), c in valid_shape()) {
        prop_assert_eq!(a.broadcast(&b), b.broadcast(&a));
        let left = a.broadcast(&b).and_then(|ab| ab.broadcast(&c));
        let right = b.broadcast(&c).and_then(|bc| a.broadcast(&bc));
        prop_assert_eq!(left, right);
        prop_assert_eq!(a.broadcast(&a), Some(a));
        prop_assert_eq!(a.broadcast(&Shape::SCALAR), Some(a));
    }

    #[test]
    fn a_shape_is_refused_exactly_if_it_is_too_large(sizes in any_sizes()) {
        let volume = sizes.iter().map(|&size| size.max(1) as f64).product::<f64>();
        let fits = sizes.len() <= MAX_RANK && volume <= MAX_ELEMENTS as f64;
        let shape = Shape::new(&sizes);
        prop_assert_eq!(shape.is_ok(), fits);
        if let Ok(shape) = shape {
            prop_assert_eq!(&*shape, &sizes[..]);
            prop_assert!(shape.elements() <= MAX_ELEMENTS);
            let layout = Layout::contiguous(shape);
            prop_assert!(layout.is_contiguous());
            prop_assert_eq!(layout.end(), shape.elements());
        }
    }

    #[test]
    fn sizes_and_axes_of_any_kind_are_refused_or_taken(
        shape in valid_shape(),
        axis in any_size(),
        size in any_size(),
        axes in any_sizes(),
    ) {
        let changed = shape.with(axis, size);
        prop_assert!(changed.is_err() || axis < shape.rank());
        prop_assert!(axis < shape.rank() || shape.from_end(axis) == 1);
        if let Ok(set) = Axes::new(&axes) {
            prop_assert!(set.rank() <= MAX_RANK);
            prop_assert_eq!(set.iter().count(), axes.len());
        }
        prop_assert_eq!(Axes::all(axis).iter().count(), axis.min(MAX_RANK));
        let _ = Permute::new(&axes);
    }

    #[test]
    fn operations_take_any_sizes_without_a_panic(
        inputs in prop::collection::vec(valid_shape(), 0..4),
        dtypes in prop::collection::vec(0_usize..5, 4),
        [a, b, c] in [valid_shape(), valid_shape(), valid_shape()],
        [m, n] in [any_size(), any_size()],
        (start, step) in any::<(i32, i32)>(),
    ) {
        let metas: Vec<Meta> =
            inputs.iter().zip(dtypes).map(|(&shape, dtype)| Meta::new(shape, DType::ALL[dtype])).collect();
        let mode = Resampling::Bilinear;
        let ops: [Op; 14] = [
            Reshape(a).into(),
            Permute::new(&[2, 0, 1]).unwrap().into(),
            Expand(a).into(),
            Slice { starts: a, sizes: b, steps: c }.into(),
            Pad { before: a, after: b, steps: c, value: 0.0 }.into(),
            Concat { axis: m }.into(),
            GatherRows.into(),
            ScatterAddRows { count: m }.into(),
            OneHot { classes: m }.into(),
            TopK { count: m }.into(),
            TopKGradient { size: m }.into(),
            Resize { mode, height: m, width: n }.into(),
            ResizeGradient { mode, height: m, width: n }.into(),
            Iota { count: m, dtype: DType::U32, start, step }.into(),
        ];
        for op in ops {
            if let Ok(outputs) = op.infer(&metas) {
                op.cost(&metas, &outputs);
                if let Some(meta) = metas.first()
                    && let Some(view) = op.spec().view(&Layout::contiguous(meta.shape))
                {
                    prop_assert_eq!(view.shape, outputs[0].shape);
                    prop_assert!(view.end() <= meta.shape.elements().max(view.offset));
                }
            }
        }
    }
}

#[test]
fn steps_that_are_never_taken_do_not_overflow() {
    let context = context();
    let mut x = context.tensor(&[1, 3], &[1_u8, 2, 3]).unwrap();
    for _ in 0..5 {
        x = x.slice(&[0, 0], &[1, 3], &[1 << 40, 1]).unwrap();
    }
    assert_eq!(x.to_vec::<u8>().unwrap(), [1, 2, 3]);
    let x = x.slice(&[0, 3], &[1, 0], &[1, 1 << 40]).unwrap().expand(&[5, 0]).unwrap();
    assert_eq!(x.to_vec::<u8>().unwrap(), []);
}
