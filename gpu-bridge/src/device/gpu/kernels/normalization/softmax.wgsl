// Powers of what elements are less than the largest, times a share, or the same as logarithms.

struct Ready { largest: f32, share: f32 }

fn prepare(result: u32, state: State) -> Ready {
    return Ready(state.x, $SHARE);
}

fn put(at: u32, folded: u32, result: u32, ready: Ready) {
    if ($MASKED) {
        y_put(at, 0.0);
    } else {
        let less = x_at(at) - ready.largest;
        y_put(at, $RESULT);
    }
}

fn finish(result: u32, ready: Ready) {}
