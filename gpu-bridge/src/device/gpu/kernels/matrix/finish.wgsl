// What happens to a sum before it is a result: scale, bias, activation.

fn finished(sum: f32, column: u32) -> f32 {
    let x = parameters.body.scale * sum;
    return $BIASED;
}

fn activated(x: f32) -> f32 {
    return $ACTIVATED;
}

// The activations; `a` and `b` are their attributes. Comparisons are chosen so that NaN stays NaN.

fn clamped(x: f32, low: f32, high: f32) -> f32 {
    let above = select(x, low, x < low);
    return select(above, high, above > high);
}

fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(-x)); }

// The share of a normal distribution that lies below.
fn normal_share(x: f32) -> f32 {
    // By Abramowitz and Stegun, 7.1.26, of the error function.
    let size = abs(x) * 0.70710678;
    let t = 1.0 / (1.0 + 0.3275911 * size);
    let series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let tail = 0.5 * series * exp(-size * size);
    return select(1.0 - tail, tail, x < 0.0);
}

fn gelu(x: f32) -> f32 {
    let bounded = select(x, -20.0, x < -20.0);
    return bounded * normal_share(bounded);
}

fn silu(x: f32) -> f32 {
    let bounded = select(x, -80.0, x < -80.0);
    return bounded * sigmoid(bounded);
}

fn hard_sigmoid(x: f32) -> f32 { return clamped(x + 3.0, 0.0, 6.0) / 6.0; }

fn hard_swish(x: f32) -> f32 {
    let bounded = select(x, -3.0, x < -3.0);
    return bounded * hard_sigmoid(bounded);
}

fn sign_of(x: f32) -> f32 { return select(select(x, -1.0, x < 0.0), 1.0, x > 0.0); }
