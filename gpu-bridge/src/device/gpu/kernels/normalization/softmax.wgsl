// Ready are the largest element, and what powers are multiplied by or logarithms are less.

fn prepare(result: u32, state: State) -> State {
    return State(state.x, $SHARE, 0.0, 0.0);
}

fn put(at: u32, folded: u32, result: u32, ready: State) {
    if ($MASKED) {
        y_put(at, 0.0);
    } else {
        let less = x_at(at) - ready.x;
        y_put(at, $RESULT);
    }
}

fn finish(result: u32, ready: State) {}
