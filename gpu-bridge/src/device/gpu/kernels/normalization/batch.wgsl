// By the mean and variance of the batch itself.

fn prepare(result: u32, state: State) -> Ready {
    return normalizing(result, state.w + state.x, state.y / parameters.body.attributes.count);
}

fn finish(result: u32, ready: Ready) {
    mean_put(result, ready.mean);
    variance_put(result, ready.variance);
}
