// Windows of one size at a stride.

struct Body {
    sizes: array<u32, 2>,
    pooled: array<u32, 2>,
    kernel: array<u32, 2>,
    stride: array<u32, 2>,
    padding: array<u32, 2>,
    count_padding: u32,
}

// The part of an axis that a window covers (its first element, one past its last), and what a mean counts of it.
fn covered(axis: u32, index: u32) -> vec3<u32> {
    let padding = parameters.body.padding[axis];
    let size = parameters.body.sizes[axis];
    // Counted from the start of the padding.
    let start = index * parameters.body.stride[axis];
    let end = start + min(parameters.body.kernel[axis], size + 2u * padding - start);
    let first = max(start, padding) - padding;
    let last = min(max(end, padding) - padding, size);
    return vec3<u32>(first, last, select(last - first, end - start, parameters.body.count_padding == 1u));
}

// The windows that cover a place: the first, and one past the last.
fn reached(axis: u32, place: u32) -> vec2<u32> {
    let stride = parameters.body.stride[axis];
    let kernel = parameters.body.kernel[axis];
    let padded = place + parameters.body.padding[axis];
    var first = 0u;
    if (padded >= kernel) { first = (padded - kernel) / stride + 1u; }
    return vec2<u32>(first, min(padded / stride + 1u, parameters.body.pooled[axis]));
}
