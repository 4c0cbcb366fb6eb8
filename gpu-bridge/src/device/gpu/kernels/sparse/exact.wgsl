// Sums with twice the digits: a sum, and what rounding took from it.

struct Body {
    nought: u32,
    points: u32,
    clusters: u32,
    dimensions: u32,
    grain: u32,
    slices: u32,
    chunks: u32,
    skipped: u32,
    most: u32,
}

// The same number, but compilers cannot tell: they would find that what rounding took is nothing.
fn opaque(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ parameters.body.nought);
}

fn exact_sum(total: vec2<f32>, x: f32) -> vec2<f32> {
    let sum = opaque(total.x + x);
    let added = opaque(sum - total.x);
    let kept = opaque(sum - added);
    let lost = opaque(total.x - kept) + opaque(x - added);
    return vec2<f32>(sum, total.y + lost);
}
