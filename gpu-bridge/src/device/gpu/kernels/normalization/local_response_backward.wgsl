// The gradient through the element itself is there; that through the divisors in which it counts is added.

fn value(i: u32) -> f32 {
    let channel = channel_of(i);
    let plane = parameters.body.plane;
    let before = min(channel, parameters.body.after);
    let after = min(parameters.body.channels - 1u - channel, parameters.body.before);
    var at = i - before * plane;
    var sum = 0.0;
    for (var neighbour = 0u; neighbour <= before + after; neighbour++) {
        sum += indirect_at(at);
        at += plane;
    }
    return y_at(i) - 2.0 * parameters.body.share * parameters.body.beta * x_at(i) * sum;
}
