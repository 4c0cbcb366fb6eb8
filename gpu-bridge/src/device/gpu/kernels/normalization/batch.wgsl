// By the mean and variance of the batch itself.

fn prepare(result: u32, state: State) -> State {
    return normalizing(result, state.w + state.x, state.y / parameters.body.attributes.count);
}

fn finish(result: u32, ready: State) {
    mean_put(result, ready.x);
    variance_put(result, ready.w);
}
