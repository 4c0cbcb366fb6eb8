// States are moments: the mean's distance from some number near it, the sum of squared distances from the mean, how many
// elements they are of, and that number. It is the same for all elements of a result, so that means are merged by their
// small distances and the last digits of what is far from zero are not lost.

fn nothing() -> State {
    return State();
}

fn merge(a: State, b: State) -> State {
    if (a.z == 0.0) { return b; }
    if (b.z == 0.0) { return a; }
    let count = a.z + b.z;
    let share = b.z / count;
    let distance = b.x - a.x;
    return State(a.x + distance * share, a.y + b.y + distance * distance * a.z * share, count, a.w);
}
