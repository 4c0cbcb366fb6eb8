// A thread makes a block of bits into four numbers.

struct Body {
    seed_low: u32,
    seed_high: u32,
    offset_low: u32,
    offset_high: u32,
    // Always zero, which the compiler cannot know: see `rounded`.
    zero: u32,
    threshold: u32,
    elements: u32,
    // Low, span and highest number; mean and deviation; or the scale.
    p: f32,
    q: f32,
    r: f32,
}

// 24 bits as a number in [0, 1).
fn unit(bits: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(bits >> vec4(8u)) * 5.9604645e-8;
}

// Keeps a compiler from fusing the product `x` with a sum, which would round once and not twice.
fn rounded(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4(parameters.body.zero));
}

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i < parameters.count) { store(i, numbers(i, block(i))); }
}
