// Functions of one or two numbers, closer to the exact value than the built-in ones must be, and with NaN, infinities,
// zeros and subnormal numbers as IEEE 754 has them. Errors are in units of the last place (ulp).
//
// Compilers may fuse `a * b + c`, take terms apart or put them together, flush subnormal numbers to zero, and take it
// that nothing is NaN. So nothing here goes wrong by it: what must be exact is a product of few digits, digits are cut
// off by their bits, and special cases are found by their bits.

const LN_2: f32 = 0.6931472;
// ln 2 in two parts; the first has so few digits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.6933594;
const LN_2_LOW: f32 = -2.1219444e-4;

// The number with the sign of another.
fn signed_as(size: f32, x: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(size) & 0x7fffffffu) | (bitcast<u32>(x) & 0x80000000u));
}

// The upper 12 binary digits: the product of two such numbers is exact.
fn upper(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// `2^power` for a normal result.
fn power_of_two(power: i32) -> f32 {
    return bitcast<f32>(u32(power + 127) << 23u);
}

// `x * 2^power` for an `x` from 1/2 to 2 and a power from -160 to 160, rounded once. What is below the normal numbers is
// made from its digits, for GPUs that would flush it.
fn scaled(x: f32, power: i32) -> f32 {
    let half = power >> 1u;
    let digits = u32(round(x * power_of_two(min(power, -126) + 149)));
    return select(x * power_of_two(half) * power_of_two(power - half), bitcast<f32>(digits), power < -125);
}

// `e^x` for `x` between -0.36 and 0.36.
fn exp_near(x: f32) -> f32 {
    var tail = 1.9875691e-4 * x + 1.3982e-3;
    tail = tail * x + 8.333452e-3;
    tail = tail * x + 4.1665796e-2;
    tail = tail * x + 0.16666665;
    tail = tail * x + 0.5;
    return (tail * (x * x) + x) + 1.0;
}

// `e^x`, within 1 ulp.
fn exp_(x: f32) -> f32 {
    // Beyond these it is infinite or zero.
    let inside = min(max(x, -104.0), 89.0);
    let power = round(inside * 1.4426950);
    let rest = (inside - power * LN_2_HIGH) - power * LN_2_LOW;
    return select(scaled(exp_near(rest), i32(power)), x, is_nan(x));
}

// A positive number as `fraction * 2^power` with a fraction from sqrt(1/2) to sqrt(2).
struct Parts { fraction: f32, power: f32 }

fn parts(size: u32) -> Parts {
    // The digits of a subnormal number are a whole number.
    let subnormal = size < 0x800000u;
    let normal = select(size, bitcast<u32>(f32(size)), subnormal);
    let shift = select(-127, -276, subnormal);
    let bits = normal + (0x3f800000u - 0x3f3504f3u);
    return Parts(bitcast<f32>((bits & 0x7fffffu) + 0x3f3504f3u), f32(i32(bits >> 23u) + shift));
}

// The natural logarithm, within 1 ulp.
fn log_(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let reduced = parts(bits & 0x7fffffffu);
    let fraction = reduced.fraction - 1.0;
    let power = reduced.power;
    let s = fraction / (2.0 + fraction);
    let z = s * s;
    let w = z * z;
    let odd = w * (0.40000972 + w * 0.24279079);
    let even = z * (0.6666666 + w * 0.28498787);
    let half_square = 0.5 * fraction * fraction;
    let tail = s * (half_square + (odd + even)) + power * 9.058001e-6;
    let value = ((tail - half_square) + fraction) + power * 0.6931381;
    if ((bits & 0x7fffffffu) == 0u) { return -infinity(); }
    // Infinity and NaN are their own logarithms.
    if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) { return x; }
    return select(value, not_a_number(), is_negative(x));
}

// The hyperbolic tangent, within 2 ulp.
fn tanh_(x: f32) -> f32 {
    let size = abs(x);
    let z = x * x;
    var tail = -5.7049887e-3 * z + 2.063909e-2;
    tail = tail * z - 5.3739716e-2;
    tail = tail * z + 0.13331442;
    tail = tail * z - 0.3333328;
    let near = select((tail * z) * x + x, x, size < 2e-4);
    let far = signed_as(1.0 - 2.0 / (exp_(2.0 * size) + 1.0), x);
    return select(select(far, near, size < 0.625), x, is_nan(x));
}

// `1 / (1 + e^-x)`, within 3 ulp, small results too.
fn sigmoid_(x: f32) -> f32 {
    let small = exp_(-abs(x));
    return select(select(1.0, small, is_negative(x)) / (1.0 + small), x, is_nan(x));
}

// The error function, within 2 ulp.
fn erf_(x: f32) -> f32 {
    let z = x * x;
    var tail = -5.967617e-4 * z + 4.9911942e-3;
    tail = tail * z - 2.6768135e-2;
    tail = tail * z + 0.112819925;
    tail = tail * z - 0.37612534;
    tail = tail * z + 0.12837917;
    let near = tail * x + x;
    // From 4 on it is 1.
    let size = abs(x);
    let t = min(size, 4.0);
    let s = t * t;
    var power = (-1.7285347e-5 * t + 3.8319713e-4) * s + (-3.8839644e-3 * t + 2.4254622e-2);
    power = power * t - 0.10677788;
    power = power * t - 0.6348467;
    power = power * t - 0.12871751;
    power = power * t - t;
    let far = signed_as(1.0 - exp_(power), x);
    return select(select(near, far, size > 0.9277344), x, is_nan(x));
}

// The share of a normal distribution below `x`: `(1 + erf(x / sqrt 2)) / 2`. Within 1e-7.
fn normal_share(x: f32) -> f32 {
    return 0.5 + 0.5 * erf_(x * 0.70710677);
}

// `a / b`, within 1 ulp where the built-in may be off by more: what is left is divided again.
fn divide_(a: f32, b: f32) -> f32 {
    let quotient = a / b;
    let size = bitcast<u32>(quotient) & 0x7fffffffu;
    let divisor = bitcast<u32>(b) & 0x7fffffffu;
    // Where a part could be flushed or overflow, it is left as it is.
    let plain = size < 0x20000000u || size > 0x5f000000u || divisor < 0x20000000u || divisor > 0x5f000000u;
    let quotient_high = upper(quotient);
    let quotient_low = quotient - quotient_high;
    let b_high = upper(b);
    let b_low = b - b_high;
    let rest = ((a - quotient_high * b_high) - quotient_high * b_low - quotient_low * b_high) - quotient_low * b_low;
    return select(quotient + rest / b, quotient, plain);
}

// The square root, within 1 ulp.
fn sqrt_(x: f32) -> f32 {
    let root = sqrt(x);
    let bits = bitcast<u32>(x);
    let high = upper(root);
    let low = root - high;
    let rest = ((x - high * high) - 2.0 * high * low) - low * low;
    let value = select(root, root + 0.5 * rest / root, bits > 0x20000000u && bits < 0x7f800000u);
    return select(value, not_a_number(), is_negative(x) && (bits << 1u) != 0u);
}

// `1 / sqrt(x)`, within 1.5 ulp.
fn rsqrt_(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if ((bits << 1u) == 0u) { return signed_as(infinity(), x); }
    if (bits == 0x7f800000u) { return 0.0; }
    return divide_(1.0, sqrt_(x));
}

// `x^y`, within 1.25 ulp. What IEEE 754 says holds: anything to the power 0 and 1 to any power are 1, and a negative base
// takes integer powers only.
//
// An error in the logarithm grows with the exponent, so the logarithm is a sum of two numbers: one of 12 digits, and the
// rest.
fn pow_(x: f32, y: f32) -> f32 {
    let base = bitcast<u32>(x) & 0x7fffffffu;
    let reduced = parts(base);
    // The logarithm of the fraction is 2 s (1 + z/3 + z^2/5 + ...) with s = f / (2 + f) and z = s^2.
    let f = reduced.fraction - 1.0;
    let divisor = 2.0 + f;
    let divisor_high = upper(divisor);
    let divisor_low = f - (divisor_high - 2.0);
    let s_high = upper(f / divisor);
    let s_low = ((f - s_high * divisor_high) - s_high * divisor_low) / divisor;
    let s = s_high + s_low;
    let z = s * s;
    let z_high = upper(z);
    let z_low = (s_high * s_high - z_high) + (s_high + s) * s_low;
    // The sum in the brackets but for its 1.
    let third = z_high * 0.33325195;
    let further = z * z * (0.2 + z * (0.14285715 + z * (0.11111111 + z * 0.09090909)));
    let others = (z_high * 8.1380206e-5 + z_low * 0.33333334) + further;
    let sum_high = upper(third + others);
    let sum_low = (third - sum_high) + others;
    let product = s_high * sum_high;
    let left = s_low + (s_high * sum_low + s_low * sum_high);
    let log_high = upper((s_high + product) + left);
    let log_low = ((s_high - log_high) + product) + left;
    // To the base 2: times 2 / ln 2, and the power of two added.
    let scaled_high = log_high * 2.8847656;
    let scaled_low = log_high * 6.2445678e-4 + log_low * 2.88539;
    let binary_high = upper((reduced.power + scaled_high) + scaled_low);
    let binary_low = ((reduced.power - binary_high) + scaled_high) + scaled_low;
    // Beyond 2^32 every power but that of 1 is infinite or zero.
    let exponent = min(max(y, -4294967296.0), 4294967296.0);
    let exponent_high = upper(exponent);
    let exact = exponent_high * binary_high;
    let rest = (exponent - exponent_high) * binary_high + exponent * binary_low;
    let power_high = upper(exact + rest);
    let power_low = (exact - power_high) + rest;
    let whole = round(min(max(power_high, -160.0), 160.0));
    let part = select(0.0, power_high - whole, abs(power_high) < 160.0);
    let part_low = select(0.0, power_low, abs(power_high) < 160.0);
    var value = scaled(exp_near(part * LN_2_HIGH + (part * LN_2_LOW + part_low * LN_2)), i32(whole));

    if (base == 0u || base == 0x7f800000u) {
        value = select(infinity(), 0.0, (base == 0u) != is_negative(y));
    }
    let y_size = abs(y);
    let large = bitcast<u32>(y_size) >= 0x4b800000u;
    let truncated = u32(min(y_size, 16777216.0));
    let integer = large || (bitcast<u32>(f32(truncated)) == bitcast<u32>(y_size));
    if (is_negative(x)) {
        if (!large && integer && (truncated & 1u) == 1u) { value = -value; }
        if (!integer && base != 0u && base != 0x7f800000u) { value = not_a_number(); }
    }
    if (is_nan(x) || is_nan(y)) { value = not_a_number(); }
    if (bitcast<u32>(x) == 0x3f800000u || bitcast<u32>(y_size) == 0u) { value = 1.0; }
    return value;
}

// Cosine and sine of an angle in units of a turn / 2^24: so the quarter it lies in is exact.
fn cosine_and_sine_of_turn(angle: u32) -> vec2<f32> {
    let quarter = (angle + 0x200000u) >> 22u;
    let x = f32(bitcast<i32>(angle - (quarter << 22u))) * 3.7450703e-7;
    let z = x * x;
    let sine = ((-1.9515296e-4 * z + 8.332161e-3) * z - 0.16666655) * z * x + x;
    let cosine = (((2.4433157e-5 * z - 1.3887316e-3) * z + 4.1666646e-2) * z * z - 0.5 * z) + 1.0;
    let turned = select(vec2(cosine, sine), vec2(sine, cosine), (quarter & 1u) == 1u);
    return select(turned, -turned, vec2(((quarter + 1u) & 2u) != 0u, (quarter & 2u) != 0u));
}
