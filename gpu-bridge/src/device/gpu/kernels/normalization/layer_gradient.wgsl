// The gradient by the row.

fn prepare(result: u32, state: State) -> State {
    let count = parameters.body.attributes.count;
    return State(state.x / count, state.y / count, mean_at(result), rstd_at(result));
}

fn put(at: u32, folded: u32, result: u32, ready: State) {
    let normalized = (x_at(at) - ready.z) * ready.w;
    dx_put(at, ready.w * (dy_at(at) * scale_at(folded) - ready.x - normalized * ready.y));
}

fn finish(result: u32, ready: State) {}
