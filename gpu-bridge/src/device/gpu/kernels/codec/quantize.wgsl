// One word of codes. 32 elements, which are of one bucket, are as many words as a code has bits.

struct Body {
    seed_low: u32,
    seed_high: u32,
    offset_low: u32,
    offset_high: u32,
    // Always zero, which the compiler cannot know: see `rounded`.
    zero: u32,
    elements: u32,
    bucket: u32,
}

// Keeps a compiler from fusing the product `x` with a sum, which would round once and not twice.
fn rounded(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ parameters.body.zero);
}

fn code_of(x: f32, lift: f32, inverse: f32, bits: u32) -> u32 {
    let exact = rounded(abs(x) * lift * inverse);
    let below = floor(exact);
    let chance = f32(bits >> 8u) * 5.9604645e-8;
    let level = min(u32(below) + select(0u, 1u, chance < exact - below), $LEVELS);
    if (level == 0u) { return 0u; }
    return level | ((bitcast<u32>(x) >> 31u) << ($BITS - 1u));
}

fn value(i: u32) -> u32 {
    let group = i / $BITS;
    let first_bit = (i - group * $BITS) * 32u;
    var element = group * 32u + first_bit / $BITS;
    let scale = scales_at(element / parameters.body.bucket);
    if (is_nan(scale) || scale == 0.0) { return 0u; }
    var lift = 1.0;
    if (scale >= 0x1p64f) { lift = 0x1p-64f; }
    if (scale < 0x1p-64f) { lift = 0x1p64f; }
    let inverse = f32($LEVELS) / (scale * lift);
    // Where the element's code starts: the first may have begun in the word before.
    var start = i32(first_bit / $BITS * $BITS) - i32(first_bit);
    var made = block(element / 4u);
    var word = 0u;
    while (start < 32 && element < parameters.body.elements) {
        let code = code_of(x_at(element), lift, inverse, made[element % 4u]);
        if (start < 0) { word |= code >> u32(-start); } else { word |= code << u32(start); }
        start += i32($BITS);
        element++;
        if (element % 4u == 0u) { made = block(element / 4u); }
    }
    return word;
}
