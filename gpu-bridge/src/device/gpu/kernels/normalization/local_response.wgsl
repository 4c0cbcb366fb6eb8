// Each element by the squares of the channels around it: x / (k + share * sum)^beta.

struct Body {
    channels: u32,
    plane: u32,
    before: u32,
    after: u32,
    share: f32,
    beta: f32,
    k: f32,
}

fn channel_of(i: u32) -> u32 {
    return (i / parameters.body.plane) % parameters.body.channels;
}

// Of an element and its channel: what is taken to a power.
fn divisor(i: u32, channel: u32) -> f32 {
    let plane = parameters.body.plane;
    let before = min(channel, parameters.body.before);
    let after = min(parameters.body.channels - 1u - channel, parameters.body.after);
    var at = i - before * plane;
    var sum = 0.0;
    for (var neighbour = 0u; neighbour <= before + after; neighbour++) {
        let x = x_at(at);
        sum += x * x;
        at += plane;
    }
    return parameters.body.k + parameters.body.share * sum;
}

// Of what is negative it is not a number.
fn power(base: f32) -> f32 {
    return exp_(-parameters.body.beta * log_(base));
}
