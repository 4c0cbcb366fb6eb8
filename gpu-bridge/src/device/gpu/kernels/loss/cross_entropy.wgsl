// Ready are the largest logit, the logarithm of the sum of powers, the sum of all logits less than zero, and what powers
// are multiplied by.

fn prepare(result: u32, state: State) -> State {
    return State(state.x, log_(state.y), state.z, parameters.body.attributes.factor / state.y);
}

fn put(at: u32, folded: u32, result: u32, ready: State) {
    let attributes = parameters.body.attributes;
    let even = attributes.smoothing / attributes.count * attributes.factor;
    let hit = select(0.0, (1.0 - attributes.smoothing) * attributes.factor, folded == labels_index(result));
    gradient_put(at, exp_(x_at(at) - ready.x) * ready.w - even - hit);
}

fn cross_entropy(result: u32, x: f32, ready: State) -> f32 {
    let smoothing = parameters.body.attributes.smoothing;
    // The difference from the largest comes first: that is exact.
    let of_label = ready.y + (ready.x - x);
    if (smoothing == 0.0) { return of_label; }
    let of_all = ready.y + (ready.x + ready.z / parameters.body.attributes.count);
    return (1.0 - smoothing) * of_label + smoothing * of_all;
}
