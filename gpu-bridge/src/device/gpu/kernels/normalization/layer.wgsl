// Normalizes a row.

struct Ready { mean: f32, rstd: f32 }

fn prepare(result: u32, state: State) -> Ready {
    let variance = state.y / parameters.body.attributes.count;
    return Ready(state.w + state.x, rsqrt_(variance + parameters.body.attributes.epsilon));
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    y_put(at, (x_at(at) - ready.mean) * ready.rstd * scale_at(folded) + shift_at(folded));
}

fn finish(result: u32, ready: Ready) {
    mean_put(result, ready.mean);
    rstd_put(result, ready.rstd);
}
