// The sum of the losses of elements, each of which leaves its gradient.

alias Run = f32;

fn begin(result: u32, state: State) -> Run {
    return 0.0;
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let one = $LOSS(x_at(at), t_at(at));
    gradient_put(at, one.y * parameters.body.attributes.factor);
    return run + one.x;
}

fn settle(run: Run, length: u32) -> State {
    return State(run, 0.0, 0.0, 0.0);
}

// Each gives the loss and its slope.

fn hinge(p: f32, t: f32) -> vec2<f32> {
    let margin = 1.0 - t * p;
    return select(vec2(margin, -t), vec2(0.0, 0.0), margin <= 0.0);
}

fn squared(p: f32, t: f32) -> vec2<f32> {
    let difference = p - t;
    return vec2(difference * difference, 2.0 * difference);
}

fn binary_cross_entropy(x: f32, t: f32) -> vec2<f32> {
    let power = exp_(-abs(x));
    let sigmoid = select(1.0, power, x < 0.0) / (1.0 + power);
    let positive = select(x, 0.0, x <= 0.0);
    return vec2(positive - x * t + log_of_one_and(power), sigmoid - t);
}

// log(1 + x) for x from 0 to 1: twice the inverse hyperbolic tangent of x / (2 + x), by its series where x is small.
fn log_of_one_and(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let z = s * s;
    let series = 2.0 * s + 2.0 * s * z * (0.33333334 + z * (0.2 + z * 0.14285715));
    return select(log_(1.0 + x), series, x < 0.4);
}
