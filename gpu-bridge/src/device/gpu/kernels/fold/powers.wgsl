// States are sums of powers: the largest exponent, and the sum of the powers of what each is less than that.

fn nothing() -> State {
    return State(-infinity(), 0.0, 0.0, 0.0);
}

fn merge(a: State, b: State) -> State {
    // Where both are the same they may be infinite, of which the difference is no number.
    if (a.x == b.x) { return State(a.x, a.y + b.y, a.z + b.z, 0.0); }
    let power = exp_(-abs(a.x - b.x));
    if (a.x > b.x) { return State(a.x, a.y + b.y * power, a.z + b.z, 0.0); }
    return State(b.x, a.y * power + b.y, a.z + b.z, 0.0);
}

// A state with one exponent more.
fn with_power(state: vec2<f32>, x: f32) -> vec2<f32> {
    // Minus infinity adds nothing; of what is infinite nothing has a share.
    if (is_infinite(x)) { return select(vec2(x, not_a_number()), state, is_negative(x)); }
    let more = x - state.x;
    let power = exp_(-abs(more));
    if (more > 0.0) { return vec2(x, state.y * power + 1.0); }
    return vec2(state.x, state.y + power);
}
