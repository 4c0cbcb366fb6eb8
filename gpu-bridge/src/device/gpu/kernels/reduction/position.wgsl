// States are where the furthest element is first: its value, and its index in two halves, each of which a float holds.

fn nothing() -> State {
    return State(0.0, 65535.0, 65535.0, 0.0);
}

// Of two elements the further; of two alike, NaN too, the earlier.
fn merge(a: State, b: State) -> State {
    if (a.y == 65535.0 && a.z == 65535.0) { return b; }
    if (b.y == 65535.0 && b.z == 65535.0) { return a; }
    let earlier = b.y < a.y || (b.y == a.y && b.z < a.z);
    if (is_nan(a.x) || is_nan(b.x)) {
        if (is_nan(a.x) && is_nan(b.x)) { return select(a, b, earlier); }
        return select(a, b, is_nan(b.x));
    }
    if (a.x == b.x) { return select(a, b, earlier); }
    return select(a, b, $FURTHER(b.x, a.x));
}

fn above(a: f32, b: f32) -> bool { return a > b; }

fn below(a: f32, b: f32) -> bool { return a < b; }
