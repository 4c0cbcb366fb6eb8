// States are the largest element, or the smallest.

fn nothing() -> State {
    return State($NOTHING, 0.0, 0.0, 0.0);
}

fn merge(a: State, b: State) -> State {
    return State($FURTHER(a.x, b.x), 0.0, 0.0, 0.0);
}
