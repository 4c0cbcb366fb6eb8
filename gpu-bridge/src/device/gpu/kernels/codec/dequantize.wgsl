// An element from its code, which may lie in two words.

struct Body { bucket: u32, inverse: f32 }

fn value(i: u32) -> f32 {
    let first_bit = (i % 32u) * $BITS;
    let word = i / 32u * $BITS + first_bit / 32u;
    let shift = first_bit % 32u;
    var code = codes_at(word) >> shift;
    if (shift + $BITS > 32u) { code |= codes_at(word + 1u) << (32u - shift); }
    let level = code & $LEVELS;
    let scale = scales_at(i / parameters.body.bucket);
    var size = scale;
    // What is not finite is one NaN, whatever the compiler knows of them.
    if ((scale & 0x7fffffffu) >= 0x7f800000u) {
        size = 0x7fc00000u;
    } else if (level < $LEVELS) {
        size = bitcast<u32>(f32(level) * (bitcast<f32>(scale) * parameters.body.inverse));
    }
    return bitcast<f32>(size ^ (((code >> ($BITS - 1u)) & 1u) << 31u));
}
