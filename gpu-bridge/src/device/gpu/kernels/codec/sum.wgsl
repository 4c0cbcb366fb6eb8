// How many all segments have.

fn run(group: u32, lane: u32) {
    if (group * $LANES + lane >= parameters.count) { return; }
    var sum = 0u;
    for (var segment = 0u; segment < parameters.body.segments; segment++) { sum += counts_at(segment); }
    y_put(0u, sum);
}
