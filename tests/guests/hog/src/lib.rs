//! A function that keeps a device busy with the operation that the request's body names, for as long as it is let: for tests
//! of what the others on the node notice. `list` answers the names, one per line, each followed by the
//! functions of the interface `kernels` that it is about.
//!
//! Each works on tensors as large as a lease of 256 MiB admits, on views of one number that seem far larger, and with
//! attributes that make a single call as long as it can be. An operation that ends is called again.

use weft_sdk::data::Csr;
use weft_sdk::tensor::{Comparison, Convolution, Reducer, Resampling, TensorType, UnaryOp, Window};
use weft_sdk::{Error, Request, Response, Result, Tensor, loss};

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

/// 128 MiB of numbers, for what makes little of them.
fn larger() -> Result<Tensor> {
    Tensor::ones(&[1 << 13, 1 << 12])
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

/// A name, the functions of the interface `kernels` that it is about, and what it does.
const HOGS: &[(&str, &[&str], Hog)] = &[
    ("matmul", &["matmul"], || {
        let (a, b) = (seeming(&[512, 1 << 30])?, seeming(&[1 << 30, 512])?);
        for_ever(|| a.matmul(&b))
    }),
    ("batched-matmul", &["matmul"], || {
        let (a, b) = (seeming(&[256, 256, 1 << 22])?, seeming(&[256, 1 << 22, 256])?);
        for_ever(|| a.matmul(&b))
    }),
    ("conv2d", &["conv2d"], || {
        // What is made of a weight to multiply it by takes some times as much as it does.
        let (x, weight) = (seeming(&[1, 1 << 11, 64, 64])?, Tensor::ones(&[256, 1 << 11, 3, 3])?);
        for_ever(|| x.conv2d(&weight, None, Convolution::default()))
    }),
    ("local-response-norm", &["local-response-norm"], || {
        let x = Tensor::ones(&[1, 1 << 20, 1, 4])?;
        for_ever(|| x.local_response_norm(1 << 20, 1.0, 0.75, 1.0))
    }),
    ("max-pool", &["max-pool2d"], || {
        let x = image()?;
        for_ever(|| x.max_pool2d(Window::square(1 << 10).stride(1)))
    }),
    ("average-pool", &["average-pool2d"], || {
        let x = image()?;
        for_ever(|| x.average_pool2d(Window::square(1 << 10).stride(1)))
    }),
    ("adaptive-average-pool", &["adaptive-average-pool2d"], || {
        let x = image()?;
        for_ever(|| x.adaptive_average_pool2d(1 << 11, 1))
    }),
    ("adaptive-max-pool", &["adaptive-max-pool2d"], || {
        let x = image()?;
        for_ever(|| x.adaptive_max_pool2d(1, 1 << 11))
    }),
    ("resize", &["resize"], || {
        let x = seeming(&[1, 1, 1, 1])?;
        for_ever(|| x.resize(Resampling::Bilinear, 1 << 12, 1 << 12))
    }),
    ("top-k", &["top-k"], || {
        let x = Tensor::ones(&[1, 1 << 22])?;
        for_ever(|| Ok(x.top_k(1 << 20)?.0))
    }),
    ("gather", &["gather-rows"], || {
        let (table, index) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 12], 0.0)?);
        for_ever(|| table.gather_rows(&index))
    }),
    ("scatter", &["scatter-add-rows"], || {
        let (rows, index) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 11], 0.0)?);
        for_ever(|| rows.scatter_add_rows(&index, 1))
    }),
    ("one-hot", &["one-hot"], || {
        let index = Tensor::full_of(TensorType::U32, &[1 << 12], 0.0)?;
        for_ever(|| index.one_hot(1 << 12))
    }),
    ("nearest", &["kmeans-assign"], || {
        let (rows, centroids) = (Tensor::ones(&[1 << 20, 16])?, seeming(&[1 << 20, 16])?);
        for_ever(|| Ok(rows.nearest(&centroids)?.1))
    }),
    ("sum-clusters", &["kmeans-accumulate"], || {
        let (rows, assignment) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 11], 0.0)?);
        for_ever(|| Ok(rows.sum_clusters(&assignment, 1)?.0))
    }),
    ("sparse-matmul", &["csr-matmul"], || {
        let (rows, x) = (sparse(1 << 22)?, Tensor::ones(&[1, 1 << 10])?);
        for_ever(|| rows.matmul(&x))
    }),
    ("sparse-transposed-matmul", &["csr-transposed-matmul"], || {
        let (rows, x) = (sparse(1 << 22)?, Tensor::ones(&[1024, 1 << 10])?);
        for_ever(|| rows.transposed_matmul(&x))
    }),
    ("reduce", &["reduce"], || {
        let x = larger()?;
        for_ever(|| x.reduce(Reducer::SumSquares, &[0], false))
    }),
    ("variance", &["variance"], || {
        let x = larger()?;
        for_ever(|| x.variance(&[1], 0, false))
    }),
    ("arg-max", &["arg-max"], || {
        let x = large()?;
        for_ever(|| x.arg_max(0))
    }),
    ("softmax", &["softmax"], || {
        let x = large()?;
        for_ever(|| x.softmax())
    }),
    ("layer-norm", &["layer-norm"], || {
        let (x, one) = (large()?, Tensor::ones(&[1 << 11])?);
        for_ever(|| x.layer_norm(&one, &one, 1e-5))
    }),
    ("batch-norm", &["batch-norm-inference"], || {
        let x = large()?;
        let [scale, shift, mean, variance] = [(); 4].map(|()| Tensor::ones(&[1 << 11]));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        for_ever(|| x.batch_norm_inference([&scale, &shift], [&mean, &variance], 1e-5, None))
    }),
    ("elementwise", &["power", "unary"], || {
        let x = large()?;
        for_ever(|| x.powf(0.3)?.tanh())
    }),
    ("layout", &["concat", "pad"], || {
        let x = large()?;
        for_ever(|| Tensor::concat(&[&x.transpose()?, &x], 0)?.pad(&[1, 1], &[1, 1], 0.0))
    }),
    ("arg-min", &["arg-min"], || {
        let x = large()?;
        for_ever(|| x.arg_min(1))
    }),
    ("linear", &["linear"], || {
        let (x, weight, bias) =
            (seeming(&[1 << 11, 1 << 12])?, Tensor::ones(&[1 << 11, 1 << 12])?, Tensor::ones(&[1 << 11])?);
        for_ever(|| x.linear(&weight, Some(&bias), Some(UnaryOp::Gelu)))
    }),
    ("embedding", &["embedding"], || {
        let (table, tokens) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 12], 0.0)?);
        for_ever(|| table.embedding(&tokens))
    }),
    ("log-softmax", &["log-softmax", "masked-softmax"], || {
        let (x, mask) = (large()?, Tensor::full_of(TensorType::U8, &[1 << 11, 1 << 11], 1.0)?);
        for_ever(|| x.log_softmax()?.masked_softmax(&mask))
    }),
    ("batch-norm-training", &["batch-norm"], || {
        let x = large()?;
        let [scale, shift, mean, variance] = [(); 4].map(|()| Tensor::ones(&[1 << 11]));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        for_ever(|| x.batch_norm([&scale, &shift], [&mean, &variance], 0.1, 1e-5, None))
    }),
    ("binary", &["binary", "compare", "select", "clamp"], || {
        let x = large()?;
        for_ever(|| {
            let power = x.pow(&x)?;
            x.compare(Comparison::Less, &power)?.select(&x, &power)?.clamp(0.0, 1.0)
        })
    }),
    ("cast", &["cast", "affine", "leaky-relu", "soft-threshold"], || {
        let x = large()?;
        for_ever(|| {
            let half = x.affine(2.0, 1.0)?.leaky_relu(0.1)?.cast(TensorType::F16)?;
            half.cast(TensorType::F32)?.soft_threshold(0.5)
        })
    }),
    ("copies", &["reshape", "iota"], || {
        let across = large()?.transpose()?;
        for_ever(|| {
            Tensor::indices(1 << 22)?;
            across.reshape(&[1 << 22])
        })
    }),
    ("random", &["uniform", "normal", "dropout"], || {
        let sizes = [1 << 11, 1 << 11];
        for_ever(|| {
            Tensor::normal(&sizes, 0.0, 1.0)?;
            Tensor::uniform(&sizes, 0.0, 1.0)?.dropout(0.5)
        })
    }),
    ("losses", &["cross-entropy", "nll", "binary-cross-entropy", "hinge", "mse"], || {
        let (x, labels) = (large()?, Tensor::full_of(TensorType::U32, &[1 << 11], 0.0)?);
        for_ever(|| {
            loss::cross_entropy(&x, &labels)?;
            loss::nll(&x, &labels)?;
            loss::binary_cross_entropy(&x, &x)?;
            loss::hinge(&x, &x)?;
            loss::mse(&x, &x)
        })
    }),
    ("in-place", &["assign", "accumulate", "blend"], || {
        let (into, x) = (large()?, seeming(&[1 << 11, 1 << 11])?);
        for_ever(|| {
            into.assign(&x)?;
            into.accumulate(&x, 0.5)?;
            into.blend(&x, 0.5)?;
            into.narrow(0, 0, 1)
        })
    }),
    ("small", &[], || {
        let x = Tensor::scalar(1.0)?;
        for_ever(|| x.add(&x))
    }),
];

#[weft_sdk::function]
fn hog(request: Request) -> Result<Response> {
    let asked = request.text()?;
    if asked == "list" {
        let lines: Vec<String> = HOGS.iter().map(|(name, about, _)| [&[*name], *about].concat().join(" ")).collect();
        return Ok(Response::text(lines.join("\n")));
    }
    let (_, _, hog) = HOGS
        .iter()
        .find(|(name, _, _)| *name == asked)
        .ok_or_else(|| Error::bad_input(format!("no operation `{asked}`: `list` names them")))?;
    hog()?;
    Ok(Response::text("it came to an end"))
}
