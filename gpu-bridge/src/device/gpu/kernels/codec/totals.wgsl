// How often a digit occurs in all segments.

fn value(i: u32) -> u32 {
    var sum = 0u;
    for (var segment = 0u; segment < parameters.body.segments; segment++) { sum += bins_at(segment * BINS + i); }
    return sum;
}
