// Windows that share an image as evenly as they can.

struct Body {
    sizes: array<u32, 2>,
    pooled: array<u32, 2>,
    kernel: array<u32, 2>,
    stride: array<u32, 2>,
    padding: array<u32, 2>,
    count_padding: u32,
}

// Part `index` of an axis of `size` elements that `count` parts share: `index * size / count`, rounded down, to
// `(index + 1) * size / count`, rounded up.
fn share_of(index: u32, count: u32, size: u32) -> vec2<u32> {
    let first = wide_quotient(wide_product(index, size, 0u), count).x;
    let end = wide_quotient(wide_product(index + 1u, size, 0u), count);
    return vec2<u32>(first, end.x + select(0u, 1u, end.y > 0u));
}

// The part of an axis that a window covers (its first element, one past its last), and what a mean counts of it.
fn covered(axis: u32, index: u32) -> vec3<u32> {
    let share = share_of(index, parameters.body.pooled[axis], parameters.body.sizes[axis]);
    return vec3<u32>(share, share.y - share.x);
}

// The windows that cover a place: they share the places as the places share them.
fn reached(axis: u32, place: u32) -> vec2<u32> {
    return share_of(place, parameters.body.sizes[axis], parameters.body.pooled[axis]);
}
