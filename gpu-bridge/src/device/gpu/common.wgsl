// What every kernel may use.

// Compilers may take it for granted that no number is NaN, so its bits are looked at.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn is_negative(x: f32) -> bool {
    return (bitcast<u32>(x) >> 31u) == 1u;
}

// A constant that is not finite is refused; a variable is not a constant.
fn infinity() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}

fn not_a_number() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}

// The larger, NaN if either is.
fn larger(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    return select(b, a, a > b);
}

fn smaller(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    return select(b, a, a < b);
}

// The nearest f16, ties to even: what the built-in does there is the driver's choice.
fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) { return sign | 0x7e00u; }
    if (size >= 0x477ff000u) { return sign | 0x7c00u; }
    if (size >= 0x38800000u) {
        let odd = (size >> 13u) & 1u;
        return sign | ((size + 0xfffu + odd - 0x38000000u) >> 13u);
    }
    if (size < 0x33000000u) { return sign; }
    // Below the normal range: the leading one becomes part of the digits.
    let exponent = size >> 23u;
    let digits = (size & 0x7fffffu) | 0x800000u;
    let shift = 126u - exponent;
    let kept = digits >> shift;
    let lost = digits & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let up = select(0u, 1u, lost > half || (lost == half && (kept & 1u) == 1u));
    return sign | (kept + up);
}
