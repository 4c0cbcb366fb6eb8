// How often each digit occurs in a segment, among elements that have the digits so far.

fn run(group: u32, lane: u32) {
    let segment = group * $LANES + lane;
    if (segment >= parameters.count) { return; }
    let row = segment * BINS;
    let shift = parameters.body.shift;
    for (var bin = 0u; bin < BINS; bin++) { bins_put(row + bin, 0u); }
    let end = end_of(segment);
    for (var i = start_of(segment); i < end; i++) {
        let digits = size_of(x_at(i)) >> shift;
        // At first there are no digits to have.
        if (shift < 24u && (digits >> 8u) != least_at(0u)) { continue; }
        let at = row + (digits & 255u);
        bins_put(at, bins_at(at) + 1u);
    }
}
