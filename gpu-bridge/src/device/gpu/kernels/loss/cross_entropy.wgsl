// The gradient of logits by the share of each power, and the loss of a row.

struct Ready {
    largest: f32,
    // The logarithm of the sum of powers.
    normalizer: f32,
    // The sum of all logits, negated.
    below: f32,
    label: u32,
    // What powers are multiplied by, what all classes are less, and what the label is less besides.
    share: f32,
    even: f32,
    hit: f32,
}

fn prepare(result: u32, state: State) -> Ready {
    let attributes = parameters.body.attributes;
    return Ready(
        state.x,
        log_(state.y),
        state.z,
        labels_index(result),
        attributes.factor / state.y,
        attributes.smoothing / attributes.count * attributes.factor,
        (1.0 - attributes.smoothing) * attributes.factor,
    );
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    let hit = select(0.0, ready.hit, folded == ready.label);
    gradient_put(at, exp_(x_at(at) - ready.largest) * ready.share - ready.even - hit);
}

fn cross_entropy(x: f32, ready: Ready) -> f32 {
    let smoothing = parameters.body.attributes.smoothing;
    // The difference from the largest comes first: that is exact.
    let of_label = ready.normalizer + (ready.largest - x);
    if (smoothing == 0.0) { return of_label; }
    let of_all = ready.normalizer + (ready.largest + ready.below / parameters.body.attributes.count);
    return (1.0 - smoothing) * of_label + smoothing * of_all;
}
