// The gradient by the input: less, where mean and variance are of the batch itself (the attribute `factor` is 1, else 0),
// what comes of these depending on it.

struct Ready {
    mean: f32,
    factor: f32,
    shift: f32,
    // The gradients of shift and scale, and what is subtracted for the one, and for the other at a distance from the mean.
    direct: f32,
    along: f32,
    direct_share: f32,
    along_share: f32,
}

fn prepare(result: u32, state: State) -> Ready {
    let attributes = parameters.body.attributes;
    let rstd = rsqrt_(variance_at(result) + attributes.epsilon);
    let share = attributes.factor / max(attributes.count, 1.0);
    let along = state.y * rstd;
    return Ready(
        mean_at(result),
        rstd * scale_at(result),
        $SHIFT,
        state.x,
        along,
        state.x * share,
        along * share * rstd,
    );
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    let distance = x_at(at) - ready.mean;
    let dz = $ACTIVATION_back(distance * ready.factor + ready.shift, dy_at(at));
    dx_put(at, ready.factor * (dz - ready.direct_share - distance * ready.along_share));
}

fn finish(result: u32, ready: Ready) {
    dscale_put(result, ready.along);
    dshift_put(result, ready.direct);
}
