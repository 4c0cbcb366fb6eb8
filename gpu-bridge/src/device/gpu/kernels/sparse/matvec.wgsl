// Sparse rows times a vector: some threads of a group share a row, and of the stored values those from `first` to `last`,
// whose products are added to what is there. Where the offsets are wrong nothing is done.

struct Body { rows: u32, count: u32, wide: u32, together: u32, first: u32, last: u32 }

var<workgroup> sums: array<f32, $LANES>;

fn run(group: u32, lane: u32) {
    let together = parameters.body.together;
    let row = group * ($LANES / together) + lane / together;
    let own = lane % together;
    let there = row < parameters.body.rows && wrong_at(0u) == 0u;
    var sum = 0.0;
    if (there) {
        let end = min(offsets_at(row + 1u), parameters.body.last);
        let start = max(offsets_at(row), parameters.body.first);
        for (var at = start + own; at < end; at += together) {
            let column = columns_at(at);
            if (column >= parameters.body.count) {
                out_of_range(column);
                continue;
            }
            sum += values_at(at) * x_at(column);
        }
    }
    sums[lane] = sum;
    for (var half = together / 2u; half > 0u; half = half / 2u) {
        workgroupBarrier();
        if (own < half) { sums[lane] += sums[lane + half]; }
    }
    if (there && own == 0u) {
        var before = 0.0;
        if (parameters.body.first > 0u) { before = y_at(row); }
        y_put(row, before + sums[lane]);
    }
}
