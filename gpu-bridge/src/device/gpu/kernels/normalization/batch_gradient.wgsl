// The gradient by the input: less, where mean and variance are of the batch itself (`factor` is 1, else 0), what comes of
// these depending on it.

fn prepare(result: u32, state: State) -> State {
    let rstd = rsqrt_(variance_at(result) + parameters.body.attributes.epsilon);
    return State(state.x, state.y * rstd, rstd, 0.0);
}

fn put(at: u32, folded: u32, result: u32, ready: State) {
    let rstd = ready.z;
    let share = parameters.body.attributes.factor / parameters.body.attributes.count;
    let distance = x_at(at) - mean_at(result);
    let factor = rstd * scale_at(result);
    let dz = $ACTIVATION_back(distance * factor + $SHIFT, dy_at(at));
    dx_put(at, factor * (dz - ready.x * share - distance * (ready.y * share * rstd)));
}

fn finish(result: u32, ready: State) {
    dscale_put(result, ready.y);
    dshift_put(result, ready.x);
}
