// One of two, by a condition.

fn value(i: u32) -> $TYPE {
    if (condition_of(i) != 0u) { return a_of(i); }
    return b_of(i);
}
