// The gradient by the row.

struct Ready { mean: f32, rstd: f32, direct: f32, along: f32 }

fn prepare(result: u32, state: State) -> Ready {
    let count = parameters.body.attributes.count;
    return Ready(mean_at(result), rstd_at(result), state.x / count, state.y / count);
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    let normalized = (x_at(at) - ready.mean) * ready.rstd;
    dx_put(at, ready.rstd * (dy_at(at) * scale_at(folded) - ready.direct - normalized * ready.along));
}

fn finish(result: u32, ready: Ready) {}
