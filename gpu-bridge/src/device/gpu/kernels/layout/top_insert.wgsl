// The largest of each segment of a row: a thread keeps those that it has seen in order.

struct Body { size: u32, length: u32, segment: u32, segments: u32, picked: u32 }

fn run(group: u32, lane: u32) {
    let unit = group * $LANES + lane;
    if (unit >= parameters.count) { return; }
    let size = parameters.body.size;
    let length = parameters.body.length;
    let picked = parameters.body.picked;
    let row = unit / parameters.body.segments;
    let start = (unit - row * parameters.body.segments) * parameters.body.segment;
    let end = start + min(parameters.body.segment, length - start);
    let list = unit * picked;
    for (var place = 0u; place < picked; place++) { y_put(list + place, NOTHING); }
    var least = 0u;
    for (var at = start; at < end; at++) {
        var index = at;
        if (!$RAW) { index = candidates_at(row * length + at); }
        let rank = rank_of(row, size, index);
        if (rank <= least) { continue; }
        var place = picked - 1u;
        while (place > 0u) {
            let earlier = y_at(list + place - 1u);
            if (rank_of(row, size, earlier) >= rank) { break; }
            y_put(list + place, earlier);
            place--;
        }
        y_put(list + place, index);
        least = rank_of(row, size, y_at(list + picked - 1u));
    }
}
