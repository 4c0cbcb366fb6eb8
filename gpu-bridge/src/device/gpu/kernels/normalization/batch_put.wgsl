// Normalizes a channel: ready are its mean, and what differences from that are multiplied by and moved by.

fn put(at: u32, folded: u32, result: u32, ready: State) {
    y_put(at, $ACTIVATION((x_at(at) - ready.x) * ready.y + ready.z));
}

fn normalizing(result: u32, mean: f32, variance: f32) -> State {
    let rstd = rsqrt_(variance + parameters.body.attributes.epsilon);
    return State(mean, rstd * scale_at(result), shift_at(result), variance);
}
