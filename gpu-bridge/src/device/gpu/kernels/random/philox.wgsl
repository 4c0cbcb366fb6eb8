// Random bits by Philox4x32-10, four words for four elements. A thread makes a block.

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

// The upper half of a product.
fn high_product(a: u32, b: u32) -> u32 {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let middle = a_high * b_low + ((a_low * b_low) >> 16u);
    let rest = a_low * b_high + (middle & 0xffffu);
    return a_high * b_high + (middle >> 16u) + (rest >> 16u);
}

fn block(index: u32) -> vec4<u32> {
    var c = vec4(index, 0u, parameters.body.offset_low, parameters.body.offset_high);
    var key = vec2(parameters.body.seed_low, parameters.body.seed_high);
    for (var i = 0u; i < 10u; i++) {
        let p = high_product(0xD2511F53u, c.x);
        let q = high_product(0xCD9E8D57u, c.z);
        c = vec4(q ^ c.y ^ key.x, 0xCD9E8D57u * c.z, p ^ c.w ^ key.y, 0xD2511F53u * c.x);
        key += vec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
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
