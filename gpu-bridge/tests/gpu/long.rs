//! Work that one thread of a GPU would take long for: it is cut, or refused before it runs.

use weft_gpu::op::{Expand, LocalResponseNorm, MatMul, MaxPool2d, Window};
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

#[test]
fn windows_that_nobody_could_stop_are_refused() {
    let gpu = gpu();
    let context = context(&gpu);
    let refused = |result: weft_gpu::Result<Tensor>| match result {
        Err(Error::TooLarge { reason }) => assert!(reason.contains("limit `gpu_loop`"), "{reason}"),
        other => panic!("it was not refused: {:?}", other.map(drop)),
    };
    let x = context.zeros(&[1, 8 << 20, 1]).unwrap();
    refused(context.run_one(LocalResponseNorm { size: 8 << 20, alpha: 1.0, beta: 0.75, k: 1.0 }, &[&x]));
    let x = context.zeros(&[1, 1, 1, 8 << 20]).unwrap();
    let window = Window { kernel: [1, 5 << 20], ..Window::square(1) };
    refused(context.run_one(MaxPool2d(window), &[&x]));
}
