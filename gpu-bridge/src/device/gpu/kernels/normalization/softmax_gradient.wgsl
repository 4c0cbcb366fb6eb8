// The gradient of an element depends on the others by their sum alone.

struct Ready { sum: f32 }

fn prepare(result: u32, state: State) -> Ready {
    return Ready(state.x);
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    let y = y_at(at);
    let dy = dy_at(at);
    let sum = ready.sum;
    dx_put(at, $RESULT);
}

fn finish(result: u32, ready: Ready) {}
