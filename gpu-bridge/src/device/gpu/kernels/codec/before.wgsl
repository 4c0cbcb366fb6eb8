// Makes what each segment has into what the segments before it have.

fn run(group: u32, lane: u32) {
    if (group * $LANES + lane >= parameters.count) { return; }
    var above = 0u;
    var equal = 0u;
    for (var at = 0u; at < 2u * parameters.body.segments; at += 2u) {
        let own_above = found_at(at);
        let own_equal = found_at(at + 1u);
        found_put(at, above);
        found_put(at + 1u, equal);
        above += own_above;
        equal += own_equal;
    }
}
