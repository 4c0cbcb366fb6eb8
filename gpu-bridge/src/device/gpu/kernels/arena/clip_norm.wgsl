// Gradients, shortened if they are longer than the limit.

struct Body { limit: f32 }

// Compilers may take it for granted that no number is infinite or NaN, so these are told apart first.
fn scale_of(sum: f32) -> f32 {
    let limit = parameters.body.limit;
    if (is_nan(sum) || (is_negative(sum) && sum != 0.0)) { return not_a_number(); }
    if (is_infinite(limit)) { return select(1.0, not_a_number(), is_infinite(sum)); }
    if (is_infinite(sum)) { return 0.0; }
    let scale = limit / (sqrt(sum) + 1e-6);
    return select(scale, 1.0, scale > 1.0);
}

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let scale = scale_of(sum_at(0u));
    if (!is_nan(scale) && scale == 1.0) { return; }
    y_$PUT(i, y_$AT(i) * scale);
}
