// Sparse rows times a dense matrix: a thread for each element of the result. Where the offsets are wrong nothing is done:
// rows that overlap could be any amount of work.

struct Body { rows: u32, count: u32, wide: u32, together: u32 }

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count || wrong_at(0u) != 0u) { return; }
    let wide = parameters.body.wide;
    let row = thread / wide;
    let own = thread - row * wide;
    let end = offsets_at(row + 1u);
    var sum = 0.0;
    for (var at = offsets_at(row); at < end; at++) {
        let column = columns_at(at);
        if (column >= parameters.body.count) {
            if (own == 0u) { out_of_range(column); }
            continue;
        }
        sum += values_at(at) * x_at(column * wide + own);
    }
    y_put(thread, sum);
}
