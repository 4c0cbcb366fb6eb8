// Normalizes a row: ready are its mean and one over its deviation.

fn prepare(result: u32, state: State) -> State {
    let variance = state.y / parameters.body.attributes.count;
    return State(state.w + state.x, rsqrt_(variance + parameters.body.attributes.epsilon), 0.0, 0.0);
}

fn put(at: u32, folded: u32, result: u32, ready: State) {
    y_put(at, (x_at(at) - ready.x) * ready.y * scale_at(folded) + shift_at(folded));
}

fn finish(result: u32, ready: State) {
    mean_put(result, ready.x);
    rstd_put(result, ready.y);
}
