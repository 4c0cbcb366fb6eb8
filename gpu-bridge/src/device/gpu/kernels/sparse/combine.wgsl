// The sums of all chunks, in order, rounded once.

fn value(i: u32) -> f32 {
    let cluster = i / parameters.body.dimensions;
    let axis = i - cluster * parameters.body.dimensions;
    let row = parameters.body.dimensions + 1u;
    var total = vec2<f32>();
    var plain = 0.0;
    for (var chunk = 0u; chunk < parameters.body.chunks; chunk++) {
        let at = 2u * ((chunk * parameters.body.clusters + cluster) * row + axis);
        let x = bitcast<f32>(partial_sums_at(at));
        plain += x;
        total = exact_sum(total, x);
        total.y += bitcast<f32>(partial_sums_at(at + 1u));
    }
    // What rounding took from an infinite sum is no number.
    if (is_nan(plain) || is_infinite(plain)) { return plain; }
    return total.x + total.y;
}
