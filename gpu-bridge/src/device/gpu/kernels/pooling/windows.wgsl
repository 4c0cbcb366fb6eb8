// Windows on images: of one size at a stride, or a given number that share the image as evenly as they can.

struct Body {
    // Down and across, as are all pairs here.
    sizes: array<u32, 2>,
    pooled: array<u32, 2>,
    kernel: array<u32, 2>,
    stride: array<u32, 2>,
    padding: array<u32, 2>,
    count_padding: u32,
}

// What a window covers along an axis: from, up to, and how many elements its mean is divided by.
struct Covered { start: u32, end: u32, count: u32 }

fn covered(axis: u32, index: u32) -> Covered {
    let size = parameters.body.sizes[axis];
    if ($ADAPTIVE) {
        let count = parameters.body.pooled[axis];
        let start = index * size / count;
        let end = ((index + 1u) * size + count - 1u) / count;
        return Covered(start, end, end - start);
    }
    let padding = parameters.body.padding[axis];
    // Counted from the start of the padding.
    let first = index * parameters.body.stride[axis];
    let count = min(parameters.body.kernel[axis], size + 2u * padding - first);
    let start = max(first, padding) - padding;
    let end = min(max(first + count, padding) - padding, size);
    return Covered(start, end, select(end - start, count, parameters.body.count_padding == 1u));
}

// The windows that cover an element along an axis: from, and up to.
fn covering(axis: u32, place: u32) -> vec2<u32> {
    let size = parameters.body.sizes[axis];
    let pooled = parameters.body.pooled[axis];
    if ($ADAPTIVE) {
        return vec2<u32>(place * pooled / size, min(((place + 1u) * pooled + size - 1u) / size, pooled));
    }
    let stride = parameters.body.stride[axis];
    let kernel = parameters.body.kernel[axis];
    let padded = place + parameters.body.padding[axis];
    let first = select((padded - kernel) / stride + 1u, 0u, padded < kernel);
    return vec2<u32>(first, min(padded / stride + 1u, pooled));
}

// Which plane, row and column an element lies at, where planes have these sizes.
fn located(i: u32, height: u32, width: u32) -> vec3<u32> {
    let rest = i / width;
    let plane = rest / height;
    return vec3<u32>(plane, rest - plane * height, i - rest * width);
}
