//! Work that one thread of a GPU would take long for: it is cut, or refused before it runs.

use weft_gpu::op::{
    Conv2d, Conv2dGradientWeight, Expand, Iota, KMeansAccumulate, KMeansAssign, LocalResponseNorm, MatMul, MaxPool2d,
    Resampling, ResizeGradient, ScatterAddRows, TopKGradient, Window,
};
use weft_gpu::{Context, DType, Error, Shape, Tensor};

use crate::{context, gpu};

fn repeated(context: &Context, sizes: &[usize]) -> Tensor {
    let one = context.full(&[1], DType::F32, 1.0).unwrap();
    context.run_one(Expand(Shape::new(sizes).unwrap()), &[&one]).unwrap()
}

#[test]
fn deep_products_are_cut_along_their_depth() {
    let gpu = gpu();
    let context = context(&gpu);
    let depth = (1 << 20) + 5;
    let (a, b) = (repeated(&context, &[2, depth]), repeated(&context, &[depth, 3]));
    let product = context.run_one(MatMul { scale: 1.0 }, &[&a, &b]).unwrap();
    assert_eq!(product.to_vec::<f32>().unwrap(), [depth as f32; 6]);
}

/// More items than one thread of a software GPU goes through in one launch; sums of so many ones are exact.
const MANY: usize = (1 << 20) + 3;

fn ones(context: &Context, sizes: &[usize]) -> Tensor {
    context.full(sizes, DType::F32, 1.0).unwrap()
}

fn zeros(context: &Context) -> Tensor {
    context.full(&[MANY], DType::U32, 0.0).unwrap()
}

#[test]
fn points_are_compared_with_many_centroids_in_several_launches() {
    let gpu = gpu();
    let context = context(&gpu);
    let centroids = context.run_one(Iota { count: MANY, dtype: DType::F32, start: 0, step: 1 }, &[]).unwrap();
    let centroids = centroids.reshape(&[MANY, 1]).unwrap();
    let points = context.tensor(&[4, 1], &[-3.0_f32, 700_000.25, (MANY - 2) as f32, f32::NAN]).unwrap();
    let nearest = context.run(KMeansAssign, &[&points, &centroids]).unwrap();
    assert_eq!(nearest[0].to_vec::<u32>().unwrap(), [0, 700_000, MANY as u32 - 2, 0]);
    assert_eq!(nearest[1].to_vec::<f32>().unwrap()[..3], [9.0, 0.0625, 0.0]);
}

#[test]
fn many_rows_are_added_to_one_of_millions_in_several_launches() {
    let gpu = gpu();
    let context = context(&gpu);
    // So many sums that there is room for one of each.
    let count = (1 << 24) + 1;
    let rows = ones(&context, &[MANY, 1]);
    let sums = context.run_one(ScatterAddRows { count }, &[&rows, &zeros(&context)]).unwrap();
    assert_eq!(sums.narrow(0, 0, 2).unwrap().to_vec::<f32>().unwrap(), [MANY as f32, 0.0]);
}

#[test]
fn many_points_of_one_of_millions_of_clusters_are_summed_in_several_launches() {
    let gpu = gpu();
    let context = context(&gpu);
    let points = ones(&context, &[MANY, 1]);
    let sums = context.run(KMeansAccumulate { clusters: (1 << 22) + 1 }, &[&points, &zeros(&context)]).unwrap();
    assert_eq!(sums[0].narrow(0, 0, 2).unwrap().to_vec::<f32>().unwrap(), [MANY as f32, 0.0]);
    assert_eq!(sums[1].narrow(0, 0, 2).unwrap().to_vec::<u32>().unwrap(), [MANY as u32, 0]);
}

#[test]
fn the_gradient_of_many_largest_of_a_row_is_added_in_several_launches() {
    let gpu = gpu();
    let context = context(&gpu);
    let dx = context.run_one(TopKGradient { size: 3 }, &[&ones(&context, &[MANY]), &zeros(&context)]).unwrap();
    assert_eq!(dx.to_vec::<f32>().unwrap(), [MANY as f32, 0.0, 0.0]);
}

#[test]
fn the_gradient_of_the_kernel_of_a_large_image_is_summed_in_several_launches() {
    let gpu = gpu();
    let context = context(&gpu);
    let conv = Conv2d { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
    let op = Conv2dGradientWeight { conv, weight: Shape::new(&[1, 1, 3, 3]).unwrap() };
    let image = ones(&context, &[1, 1, 1500, 1500]);
    let dw = context.run_one(op, &[&image, &image]).unwrap().to_vec::<f32>().unwrap();
    let (whole, edge, corner) = ((1500 * 1500) as f32, (1499 * 1500) as f32, (1499 * 1499) as f32);
    assert_eq!(dw, [corner, edge, corner, edge, whole, edge, corner, edge, corner]);
}

#[test]
fn windows_that_nobody_could_stop_are_refused() {
    let gpu = gpu();
    let context = context(&gpu);
    let refused = |result: weft_gpu::Result<Tensor>| match result {
        Err(Error::TooLarge { reason }) => assert!(reason.contains("limit `gpu_loop`"), "{reason}"),
        other => panic!("it was not refused: {:?}", other.map(drop)),
    };
    let pixel = ResizeGradient { mode: Resampling::Bilinear, height: 1, width: 1 };
    refused(context.run_one(pixel, &[&context.zeros(&[1, 1, 1, 8 << 20]).unwrap()]));
    let conv = Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 };
    let (x, weight) = (context.zeros(&[1, 1, 1, 8 << 20]).unwrap(), context.zeros(&[1, 1, 1, 5 << 20]).unwrap());
    refused(context.run_one(conv, &[&x, &weight]));
    let x = context.zeros(&[1, 8 << 20, 1]).unwrap();
    refused(context.run_one(LocalResponseNorm { size: 8 << 20, alpha: 1.0, beta: 0.75, k: 1.0 }, &[&x]));
    let x = context.zeros(&[1, 1, 1, 8 << 20]).unwrap();
    let window = Window { kernel: [1, 5 << 20], ..Window::square(1) };
    refused(context.run_one(MaxPool2d(window), &[&x]));
}

#[test]
fn products_are_whole_at_the_depth_at_which_they_are_first_cut() {
    let gpu = gpu();
    let context = context(&gpu);
    let depth = 1 << 16;
    let (a, b) = (repeated(&context, &[128, depth]), repeated(&context, &[depth, 128]));
    let product = context.run_one(MatMul { scale: 1.0 }, &[&a, &b]).unwrap();
    assert_eq!(product.to_vec::<f32>().unwrap(), vec![depth as f32; 128 * 128]);
}

#[test]
fn the_largest_windows_are_gone_through_to_their_end() {
    let gpu = gpu();
    let context = context(&gpu);
    let count = 60_000;
    let rising = context.run_one(Iota { count, dtype: DType::F32, start: 0, step: 1 }, &[]).unwrap();
    for (sizes, kernel) in [([1, 1, 1, count], [1, count]), ([1, 1, 200, 300], [200, 300])] {
        let x = rising.reshape(&sizes).unwrap();
        let most = context.run_one(MaxPool2d(Window { kernel, ..Window::square(1) }), &[&x]).unwrap();
        assert_eq!(most.to_vec::<f32>().unwrap(), [(count - 1) as f32]);
    }
}
