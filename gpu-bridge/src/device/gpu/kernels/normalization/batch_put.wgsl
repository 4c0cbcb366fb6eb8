// Normalizes a channel: differences from its mean are multiplied and moved.

struct Ready { mean: f32, variance: f32, factor: f32, shift: f32 }

fn normalizing(result: u32, mean: f32, variance: f32) -> Ready {
    let rstd = rsqrt_(variance + parameters.body.attributes.epsilon);
    return Ready(mean, variance, rstd * scale_at(result), shift_at(result));
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    y_put(at, $ACTIVATION((x_at(at) - ready.mean) * ready.factor + ready.shift));
}
