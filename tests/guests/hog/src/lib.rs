//! A function that keeps a device busy with the operation that the request's body names, for as long as it is let: for tests
//! of what the others on the node notice. `list` answers the names, one per line.
//!
//! Each works on tensors as large as a lease of 256 MiB admits, on views of one number that seem far larger, and with
//! attributes that make a single call as long as it can be. An operation that ends is called again.

use weft_sdk::data::Csr;
use weft_sdk::tensor::{Convolution, Reducer, Resampling, TensorType, Window};
use weft_sdk::{Error, Request, Response, Result, Tensor};

/// Calls an operation on what it has made once.
type Hog = fn() -> Result<()>;

/// Calls something for ever, and reads an element of what comes out, so that nothing is put off.
fn for_ever(operation: impl Fn() -> Result<Tensor>) -> Result<()> {
    loop {
        let result = operation()?;
        if result.ty() == TensorType::F32 {
            result.read::<f32>(0, 1)?;
        }
    }
}

/// 16 MiB of numbers.
fn large() -> Result<Tensor> {
    Tensor::ones(&[1 << 11, 1 << 11])
}

/// One number that seems to be many.
fn seeming(dimensions: &[u32]) -> Result<Tensor> {
    Tensor::scalar(1.0)?.expand(dimensions)
}

/// Images of 16 MiB.
fn image() -> Result<Tensor> {
    Tensor::ones(&[1, 1, 1 << 11, 1 << 11])
}

/// 1,024 sparse rows, of which the first has nearly all values.
fn sparse(values: u32) -> Result<Csr> {
    let mut offsets = vec![values; 1025];
    offsets[0] = 0;
    Ok(Csr {
        offsets: Tensor::new(&offsets, &[1025])?,
        columns: Tensor::full_of(TensorType::U32, &[values], 0.0)?,
        values: Tensor::ones(&[values])?,
        width: 1,
    })
}

const HOGS: &[(&str, Hog)] = &[
    ("matmul", || {
        let (a, b) = (seeming(&[512, 1 << 30])?, seeming(&[1 << 30, 512])?);
        for_ever(|| a.matmul(&b))
    }),
    ("batched-matmul", || {
        let (a, b) = (seeming(&[256, 256, 1 << 22])?, seeming(&[256, 1 << 22, 256])?);
        for_ever(|| a.matmul(&b))
    }),
    ("conv2d", || {
        let (x, weight) = (seeming(&[1, 1 << 14, 64, 64])?, Tensor::ones(&[256, 1 << 14, 3, 3])?);
        for_ever(|| x.conv2d(&weight, None, Convolution::default()))
    }),
    ("local-response-norm", || {
        let x = Tensor::ones(&[1, 1 << 20, 1, 4])?;
        for_ever(|| x.local_response_norm(1 << 20, 1.0, 0.75, 1.0))
    }),
    ("max-pool", || {
        let x = image()?;
        for_ever(|| x.max_pool2d(Window::square(1 << 10).stride(1)))
    }),
    ("average-pool", || {
        let x = image()?;
        for_ever(|| x.average_pool2d(Window::square(1 << 10).stride(1)))
    }),
    ("adaptive-average-pool", || {
        let x = image()?;
        for_ever(|| x.adaptive_average_pool2d(1 << 11, 1))
    }),
    ("adaptive-max-pool", || {
        let x = image()?;
        for_ever(|| x.adaptive_max_pool2d(1, 1 << 11))
    }),
    ("resize", || {
        let x = seeming(&[1, 1, 1, 1])?;
        for_ever(|| x.resize(Resampling::Bilinear, 1 << 12, 1 << 12))
    }),
    ("top-k", || {
        let x = Tensor::ones(&[1, 1 << 22])?;
        for_ever(|| Ok(x.top_k(1 << 20)?.0))
    }),
    ("gather", || {
        let (table, index) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 12], 0.0)?);
        for_ever(|| table.gather_rows(&index))
    }),
    ("scatter", || {
        let (rows, index) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 11], 0.0)?);
        for_ever(|| rows.scatter_add_rows(&index, 1))
    }),
    ("one-hot", || {
        let index = Tensor::full_of(TensorType::U32, &[1 << 12], 0.0)?;
        for_ever(|| index.one_hot(1 << 12))
    }),
    ("nearest", || {
        let (rows, centroids) = (Tensor::ones(&[1 << 20, 16])?, seeming(&[1 << 20, 16])?);
        for_ever(|| Ok(rows.nearest(&centroids)?.1))
    }),
    ("sum-clusters", || {
        let (rows, assignment) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 11], 0.0)?);
        for_ever(|| Ok(rows.sum_clusters(&assignment, 1)?.0))
    }),
    ("sparse-matmul", || {
        let (rows, x) = (sparse(1 << 22)?, Tensor::ones(&[1, 1 << 10])?);
        for_ever(|| rows.matmul(&x))
    }),
    ("sparse-transposed-matmul", || {
        let (rows, x) = (sparse(1 << 22)?, Tensor::ones(&[1024, 1 << 10])?);
        for_ever(|| rows.transposed_matmul(&x))
    }),
    ("reduce", || {
        let x = seeming(&[1 << 15, 1 << 15])?;
        for_ever(|| x.reduce(Reducer::SumSquares, &[0], false))
    }),
    ("variance", || {
        let x = seeming(&[1 << 15, 1 << 15])?;
        for_ever(|| x.variance(&[1], 0, false))
    }),
    ("arg-max", || {
        let x = large()?;
        for_ever(|| x.arg_max(0))
    }),
    ("softmax", || {
        let x = large()?;
        for_ever(|| x.softmax())
    }),
    ("layer-norm", || {
        let (x, one) = (large()?, Tensor::ones(&[1 << 11])?);
        for_ever(|| x.layer_norm(&one, &one, 1e-5))
    }),
    ("batch-norm", || {
        let x = large()?;
        let [scale, shift, mean, variance] = [(); 4].map(|()| Tensor::ones(&[1 << 11]));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        for_ever(|| x.batch_norm_inference([&scale, &shift], [&mean, &variance], 1e-5, None))
    }),
    ("elementwise", || {
        let x = large()?;
        for_ever(|| x.powf(0.3)?.tanh())
    }),
    ("layout", || {
        let x = large()?;
        for_ever(|| Tensor::concat(&[&x.transpose()?, &x], 0)?.pad(&[1, 1], &[1, 1], 0.0))
    }),
    ("small", || {
        let x = Tensor::scalar(1.0)?;
        for_ever(|| x.add(&x))
    }),
];

#[weft_sdk::function]
fn hog(request: Request) -> Result<Response> {
    let asked = request.text()?;
    if asked == "list" {
        let names: Vec<&str> = HOGS.iter().map(|(name, _)| *name).collect();
        return Ok(Response::text(names.join("\n")));
    }
    let (_, hog) = HOGS
        .iter()
        .find(|(name, _)| *name == asked)
        .ok_or_else(|| Error::bad_input(format!("no operation `{asked}`: `list` names them")))?;
    hog()?;
    Ok(Response::text("it came to an end"))
}
