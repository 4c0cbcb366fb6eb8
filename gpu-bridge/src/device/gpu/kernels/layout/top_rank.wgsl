// The largest of each segment of a row: a thread counts how many elements come before its own.

struct Body { size: u32, length: u32, segment: u32, segments: u32, picked: u32 }

// Element `at` of a row of what is picked from. Equal elements lie in the order of their indices.
fn candidate(row: u32, at: u32) -> u32 {
    if (at >= parameters.body.length) { return NOTHING; }
    if ($RAW) { return at; }
    return candidates_at(row * parameters.body.length + at);
}

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let segment = parameters.body.segment;
    let size = parameters.body.size;
    let unit = thread / segment;
    let own = thread - unit * segment;
    let row = unit / parameters.body.segments;
    let start = (unit - row * parameters.body.segments) * segment;
    let index = candidate(row, start + own);
    let rank = rank_of(row, size, index);
    var before = 0u;
    for (var other = 0u; other < segment; other++) {
        let other_rank = rank_of(row, size, candidate(row, start + other));
        if (other_rank > rank || (other_rank == rank && other < own)) { before++; }
    }
    if (before < parameters.body.picked) {
        y_put(unit * parameters.body.picked + before, index);
    }
}
