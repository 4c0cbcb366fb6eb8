// How many elements of a segment are not zero.

fn run(group: u32, lane: u32) {
    let segment = group * $LANES + lane;
    if (segment >= parameters.count) { return; }
    var count = 0u;
    let end = end_of(segment);
    for (var i = start_of(segment); i < end; i++) { count += select(0u, 1u, x_at(i) != 0u); }
    counts_put(segment, count);
}
