// Rows added where their indices say: a thread adds one column of a chunk's rows to the sums of its slice, in order.

struct Body { items: u32, count: u32, width: u32, grain: u32, slices: u32, size: u32, skipped: u32, most: u32 }

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let width = parameters.body.width;
    let count = parameters.body.count;
    let other = parameters.body.slices - 1u;
    let unit = thread / width;
    let column = thread - unit * width;
    let slice = unit & other;
    let chunk = unit / parameters.body.slices;
    let start = chunk * parameters.body.grain;
    let length = min(parameters.body.grain, parameters.body.items - start);
    let skipped = min(parameters.body.skipped, length);
    let first = start + skipped;
    let end = first + min(parameters.body.most, length - skipped);
    let sums = chunk * parameters.body.size + column;
    for (var item = first; item < end; item++) {
        let row = index_index(item);
        if (row >= count) {
            if (slice == 0u && column == 0u) { out_of_range(row); }
            continue;
        }
        if ((row & other) != slice) { continue; }
        let at = sums + row * width;
        y_put(at, y_at(at) + $SOURCE);
    }
}
