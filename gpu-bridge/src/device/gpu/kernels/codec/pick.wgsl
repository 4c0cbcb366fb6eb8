// The elements of a segment that are above the least one, and those equal to it that are among the first, in order.

fn run(group: u32, lane: u32) {
    let segment = group * $LANES + lane;
    if (segment >= parameters.count) { return; }
    let least = least_at(0u);
    let wanted = least_at(1u);
    var equals = min(found_at(2u * segment + 1u), wanted);
    var place = found_at(2u * segment) + equals;
    let end = end_of(segment);
    for (var i = start_of(segment); i < end; i++) {
        let x = x_at(i);
        let size = size_of(x);
        if (size < least || (size == least && equals == wanted)) { continue; }
        if (size == least) { equals++; }
        if (place >= parameters.body.wanted) { return; }
        values_put(place, x);
        indices_put(place, i);
        place++;
    }
}
