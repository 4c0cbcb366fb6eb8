// How many elements of a segment are above the least one by now, and how many may be equal to it.

fn run(group: u32, lane: u32) {
    let segment = group * $LANES + lane;
    if (segment >= parameters.count) { return; }
    let row = segment * BINS;
    let digit = least_at(0u) & 255u;
    var above = 0u;
    if (parameters.body.shift < 24u) { above = found_at(2u * segment); }
    for (var bin = digit + 1u; bin < BINS; bin++) { above += bins_at(row + bin); }
    found_put(2u * segment, above);
    found_put(2u * segment + 1u, bins_at(row + digit));
}
