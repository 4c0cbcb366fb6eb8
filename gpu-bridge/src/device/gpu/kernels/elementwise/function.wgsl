// The functions of one number and their derivatives. NaN stays NaN.

fn sign_(x: f32) -> f32 {
    return select(select(select(x, -1.0, x < 0.0), 1.0, x > 0.0), x, is_nan(x));
}

fn clamp_(x: f32, low: f32, high: f32) -> f32 {
    return select(select(select(x, low, x < low), high, x > high), x, is_nan(x));
}

fn relu(x: f32) -> f32 {
    return select(x, 0.0, is_negative(x) && !is_nan(x));
}

fn relu6(x: f32) -> f32 {
    return select(relu(x), 6.0, x > 6.0 && !is_nan(x));
}

fn leaky(x: f32, slope: f32) -> f32 {
    return select(slope * x, x, x > 0.0);
}

fn gelu(x: f32) -> f32 {
    // Minus infinity would be multiplied by zero.
    let inside = select(x, -20.0, x < -20.0 && !is_nan(x));
    return inside * normal_share(inside);
}

fn silu(x: f32) -> f32 {
    let inside = select(x, -200.0, x < -200.0 && !is_nan(x));
    return inside * sigmoid_(inside);
}

fn hard_sigmoid(x: f32) -> f32 {
    return relu6(x + 3.0) / 6.0;
}

fn hard_swish(x: f32) -> f32 {
    let inside = select(x, -3.0, x < -3.0 && !is_nan(x));
    return inside * hard_sigmoid(inside);
}

fn soft_threshold(x: f32, threshold: f32) -> f32 {
    return x - clamp_(x, -threshold, threshold);
}

// From the input or the output: they have the same sign.
fn relu_gradient(x: f32, dy: f32) -> f32 {
    return select(dy, 0.0, x <= 0.0 && !is_nan(x));
}

// From the input or the output.
fn relu6_gradient(x: f32, dy: f32) -> f32 {
    return select(dy, 0.0, (x <= 0.0 || x >= 6.0) && !is_nan(x));
}

fn tanh_gradient(y: f32, dy: f32) -> f32 {
    return dy * (1.0 - y * y);
}

fn sigmoid_gradient(y: f32, dy: f32) -> f32 {
    return dy * y * (1.0 - y);
}

fn gelu_gradient(x: f32, dy: f32) -> f32 {
    let inside = clamp_(x, -20.0, 20.0);
    let density = exp_(-0.5 * inside * inside) * 0.3989423;
    return dy * (normal_share(inside) + inside * density);
}

fn silu_gradient(x: f32, dy: f32) -> f32 {
    let inside = clamp_(x, -200.0, 200.0);
    let share = sigmoid_(inside);
    return dy * share * (1.0 + inside * (1.0 - share));
}

fn hard_sigmoid_gradient(x: f32, dy: f32) -> f32 {
    return select(dy / 6.0, 0.0, (x <= -3.0 || x >= 3.0) && !is_nan(x));
}

fn hard_swish_gradient(x: f32, dy: f32) -> f32 {
    let slope = select((2.0 * x + 3.0) / 6.0, 1.0, x >= 3.0 && !is_nan(x));
    return select(dy * slope, 0.0, x <= -3.0 && !is_nan(x));
}

fn clamp_gradient(x: f32, dy: f32, low: f32, high: f32) -> f32 {
    return select(dy, 0.0, (x < low || x > high) && !is_nan(x));
}

fn soft_threshold_gradient(x: f32, dy: f32, threshold: f32) -> f32 {
    return select(dy, 0.0, abs(x) <= threshold && !is_nan(x));
}

// By the base. To the power 0 everything is 1, so nothing changes.
fn pow_base_gradient(x: f32, exponent: f32, dy: f32) -> f32 {
    return select(dy * exponent * pow_(x, exponent - 1.0), 0.0, (bitcast<u32>(exponent) << 1u) == 0u);
}

// By the exponent. Where the base is 0 the power is, too, and stays it.
fn pow_exponent_gradient(x: f32, exponent: f32, dy: f32) -> f32 {
    let stays = (bitcast<u32>(x) << 1u) == 0u && exponent >= 0.0 && !is_nan(exponent);
    return select(dy * pow_(x, exponent) * log_(x), 0.0, stays);
}

// The share of one of two operands in a gradient that goes to the larger of them.
fn larger_gradient(one: f32, other: f32, dy: f32) -> f32 {
    if (is_nan(one) || is_nan(other)) { return 0.0; }
    return select(select(0.0, 0.5 * dy, one == other), dy, one > other);
}
