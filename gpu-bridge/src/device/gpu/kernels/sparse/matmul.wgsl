// Sparse rows times a dense matrix: a thread for each element of the result, and of the stored values those from `first` to
// `last`, whose products are added to what is there. Where the offsets are wrong nothing is done: rows that overlap could
// be any amount of work.

struct Body { rows: u32, count: u32, wide: u32, together: u32, first: u32, last: u32 }

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count || wrong_at(0u) != 0u) { return; }
    let wide = parameters.body.wide;
    let row = thread / wide;
    let own = thread - row * wide;
    let end = min(offsets_at(row + 1u), parameters.body.last);
    let start = max(offsets_at(row), parameters.body.first);
    var sum = 0.0;
    if (parameters.body.first > 0u) { sum = y_at(thread); }
    for (var at = start; at < end; at++) {
        let column = columns_at(at);
        if (column >= parameters.body.count) {
            if (own == 0u) { out_of_range(column); }
            continue;
        }
        sum += values_at(at) * x_at(column * wide + own);
    }
    y_put(thread, sum);
}
